module github.com/repld/repld

go 1.26

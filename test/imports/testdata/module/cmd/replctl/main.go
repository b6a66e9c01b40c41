package main

import (
	_ "github.com/repld/repld/internal/app"
	_ "github.com/repld/repld/internal/clean"
	_ "github.com/repld/repld/internal/mysql"
	_ "github.com/repld/repld/internal/provision"
)

func main() {}

package main

import _ "github.com/repld/repld/internal/app"

func main() {}

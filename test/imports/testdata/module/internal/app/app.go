package app

import (
	_ "github.com/repld/repld/internal/mysql"
	_ "github.com/repld/repld/internal/provision"
)

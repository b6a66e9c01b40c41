package kit

import (
	_ "database/sql"

	_ "github.com/repld/repld/internal/app"
)

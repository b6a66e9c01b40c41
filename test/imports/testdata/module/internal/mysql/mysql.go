package mysql

import (
	_ "database/sql"

	_ "github.com/repld/repld/failover"
)

package health

import (
	_ "database/sql"
	"time"
)

func Watch() { time.Sleep(Limit) }

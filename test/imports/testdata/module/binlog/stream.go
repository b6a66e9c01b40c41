package binlog

import _ "github.com/repld/repld/health"

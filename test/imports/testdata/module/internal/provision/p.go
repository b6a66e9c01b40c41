package provision

import _ "github.com/repld/repld/internal/mysql"

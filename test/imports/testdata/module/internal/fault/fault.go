package fault

import _ "github.com/repld/repld/topology"

package failover

import _ "net/http"

package provision

import "time"

const dialTimeout = 10 * time.Second

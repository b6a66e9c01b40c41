package app

// More log keys.
const (
	logCluster = "cluster"
	logServer  = "server"
	logWhy     = "why"
)

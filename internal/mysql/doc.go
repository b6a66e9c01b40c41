// Package mysql is how repld talks SQL to a server: it observes it
// ([Prober], for package health) and acts on it ([Server], for package
// failover). It is the only package that imports a SQL driver.
//
// It never pools connections and never retries: one [Conn] is one connection
// to one server, each statement has its context's deadline, and an error says
// whether the server was there ([Classify]). It decides nothing: which verb is
// safe to use when is the caller's to know; the verbs themselves refuse what
// would destroy a relay log.
//
// Start reading at [Dial], then probe.go (what is looked at), server.go and
// the files of its verbs (what is done, and why in this order), and grants.go
// (the fewest privileges with which all of it works). Differences between
// versions and flavours are rows of the table in dialect.go.
package mysql

// Package mariadb starts real MariaDB servers for tests, benchmarks and the
// demo: each from a copy of a data directory that is installed once per
// machine, on a free loopback port, in a temporary folder of its own, with the
// plain my.cnf of a user who has never heard of replication.
//
// A server can be killed, frozen, thawed, stopped and restarted, by the kit or
// from outside by its restart script, as a service manager would. Whatever
// happens to the test process, nothing is left over: a guardian process ends
// the kit's servers and removes its folder as soon as the process is gone.
//
// The package never touches a server that it did not start, never simulates
// one, and never sleeps for luck: it waits for conditions.
//
// Start reading at [Kit] and [Server]; tests begin with [Start] or [New].
package mariadb

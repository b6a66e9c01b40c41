// Command replctl sets up and looks at replication through repld. It speaks
// with repld's control socket only, never to a database server.
//
// Data goes to stdout; progress, questions and errors go to stderr. The exit
// codes are listed in docs/cli.md.
//
// Start reading at main.go, then one of the verbs, for example remove.go, and
// confirm.go for what all changes share.
package main

// Package provision makes a bare server a member of a cluster and an ordinary
// server again: init master, init slave, adopt and remove.
//
// Each verb is a pure plan and its application. Facts are gathered from the
// server (facts.go), judged by a table of rules (rules.go), and turned into the
// settings that the server should have (settings.go) and the steps that lead
// there (plan.go). Nothing there opens a connection or reads a clock, so that
// --dry-run, the confirmation and the application speak of the very same plan.
// Only then are the steps carried out (configure.go, master.go), each of which
// changes nothing where its aim is already reached: a verb that was interrupted
// at any point goes on when it is given again.
//
// It never edits a file that repld did not write, never stores passwords
// anywhere but with its [Journal], never puts a secret into an argument list,
// and never opens a server before its configuration survives a restart.
//
// Start reading at [Request], then [PlanMaster], then Provisioner.InitMaster.
package provision

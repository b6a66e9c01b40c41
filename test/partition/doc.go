// Package partition proves what repld promises where the network is cut, or a
// server frozen: with the real programs and servers, each in a network namespace
// of its own, under writers that remember each commit they were told OK for.
//
// Start reading at main_test.go, then master_test.go.
package partition

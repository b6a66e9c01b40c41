// Package e2e holds the end-to-end tests: the real repld and replctl, real
// MariaDB servers, real failures, and a ledger of acknowledged commits over all
// of it. It has no code of its own.
package e2e

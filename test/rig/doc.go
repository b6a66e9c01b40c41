// Package rig runs the whole of repld as a user does: the real programs, real
// MariaDB servers with a plain my.cnf, a data_dir and a control socket of its
// own. The end-to-end tests, the demonstration and the benchmarks are built on
// it.
//
// Start reading at [New] and [Rig.InitAll].
package rig

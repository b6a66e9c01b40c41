// Command demo shows the main job of repld on real servers: set-up of a master
// and two slaves, a failover under load, the return of the old master, and a
// comparison of every acknowledged row. It exits 0 only if nothing was lost, and
// leaves nothing behind, however it ends.
//
// Start reading at [play].
package main

// Package gtid is the algebra of global transaction identifiers: parsing,
// printing, containment, difference, and the lineage of a cluster.
//
// It is pure: it reads no clock, opens no connection and never asks a server to
// compare anything, because the answer must be the same in the explorer, in a
// test and at three in the morning.
//
// Start reading at [GTID] (one transaction), then [Position] (where a slave
// stands), [State] (what a binary log holds) and [Lineage] (which of two
// servers continues the cluster's own history).
//
// MariaDB's identifiers are domain-server-sequence; the sequence grows by one
// with each transaction of a domain, whoever writes it. See
// https://mariadb.com/kb/en/gtid/.
package gtid

package provision

import (
	"slices"
	"strings"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// SlaveFacts are what is known of a server that is to be a slave beyond what is
// known of any, and of the master that it is to follow.
type SlaveFacts struct {
	// Name is the server's own.
	Name string
	// Relay is the slave that it is to replicate from, nil for the master; Others
	// are the members that it may replicate from meanwhile, if it is one itself.
	Relay  *Upstream
	Others []topology.Server

	Master        topology.Server
	MasterFacts   mysql.AdminFacts
	MasterTraits  mysql.Traits
	MasterHolding mysql.Holdings
	// OldestFile is the master's first binary log, OldestBefore what had been
	// written before it.
	OldestFile   string
	OldestBefore gtid.State

	Traits  mysql.Traits
	Holding mysql.Holdings
	// Unfinished is the record of a copy that was begun and not finished.
	Unfinished *mysql.CopyState
	// UnknownCollations are used on the master and unknown here.
	UnknownCollations []string
	// Free is the space for data, if FreeKnown.
	Free      uint64
	FreeKnown bool
	// AdminUser is the name that the administrator logged in with.
	AdminUser string
}

// repldUsers are the names of repld's accounts.
func repldUsers() []string {
	return []string{mysql.UserRepld, mysql.UserReplication, mysql.UserCopy}
}

// masterHoldsNothing tells whether the master has neither data nor accounts but
// repld's own and those of a fresh installation.
func (s *SlaveFacts) masterHoldsNothing() bool {
	return len(s.MasterHolding.Data()) == 0 && len(s.MasterHolding.OtherAccounts(repldUsers()...)) == 0
}

// attached tells whether the server already replicates as repld would set it up.
func (s *SlaveFacts) attached(f Facts) bool {
	return s.attachedTo(f) != nil
}

// Source of a new slave's data.
type copyKind string

const (
	copyNothing copyKind = "attached" // it is a slave already
	copyKeep    copyKind = "keep"     // the data is there
	copyEmpty   copyKind = "empty"    // all arrives by replication
	copyDump    copyKind = "dump"
)

// copied tells whether an interrupted run of this verb made the copy, and
// nothing has moved it since. It is pure.
func (s *SlaveFacts) copied(f Facts, c Context) bool {
	at := c.Pending.CopiedTo
	return at != nil && s.Unfinished == nil && f.SlavePos.Equal(*at)
}

// decideCopy says where the slave's data comes from, and why. It is pure.
func decideCopy(r SlaveRequest, f Facts, c Context, s SlaveFacts) (copyKind, string) {
	switch {
	case s.attached(f):
		return copyNothing, "it replicates from " + s.attachedTo(f).Name + " already"
	case s.copied(f, c):
		return copyKeep, "an earlier run has copied the data"
	case r.Clone == CloneNone:
		return copyKeep, "its data was restored from a backup of the master (--clone none)"
	case r.Clone == CloneDump:
		return copyDump, "a copy was asked for"
	case s.Unfinished != nil:
		return copyDump, "an earlier copy onto it was not finished"
	case len(r.ReplicateDoDB) > 0:
		return copyDump, "a filter would keep accounts and repld's own schema from arriving by replication"
	case !s.masterHoldsNothing():
		return copyDump, "the master holds data or accounts"
	case len(foreignSchemas(s.Holding, nil)) > 0:
		return copyDump, "what the server holds is replaced"
	}
	if s.Relay != nil {
		return copyDump, "the binary log of " + s.Relay.Server.Name + " may not reach back to the beginning"
	}
	if c.Cluster.Start == nil {
		return copyDump, "the master holds nothing, but it is not known where its history with repld begins"
	}
	if err := available(*c.Cluster.Start, s); err != nil {
		return copyDump, "the master holds nothing, but the beginning of its history with repld was purged"
	}
	return copyEmpty, "the master holds nothing but repld's own, which arrives by replication"
}

// wantedSchemas are the schemas that are copied; nil means all.
func (r *SlaveRequest) wantedSchemas() []string {
	if len(r.ReplicateDoDB) == 0 {
		return nil
	}
	return append(slices.Clone(r.ReplicateDoDB), mysql.OwnSchema)
}

// keepAccount tells which accounts of the server stay although the master has
// them too: those that an installation makes, for people get in by them, and
// the administrator's own.
func keepAccount(admin string) func(user, host string) bool {
	return func(user, _ string) bool {
		if user == "" || strings.EqualFold(user, "public") {
			return false
		}
		return user == admin && !slices.Contains(repldUsers(), user) || mysql.IsInstallAccount(mysql.AccountName{User: user})
	}
}

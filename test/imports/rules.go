package imports

import "strings"

// Module is the path of the module whose rules these are.
const Module = "github.com/repld/repld"

// allowed lists, for each package with a place in the order, the packages of
// this module that it may import besides the leaves. The order is
// gtid ← topology ← {binlog, health} ← failover ← app ← cmd.
var allowed = map[string][]string{
	"internal/gtid":      {},
	"topology":           {"internal/gtid"},
	"binlog":             {"internal/gtid", "topology"},
	"health":             {"internal/gtid", "topology"},
	"failover":           {"internal/gtid", "topology", "binlog", "health"},
	"internal/mysql":     {"internal/gtid", "topology", "binlog", "health", "failover"},
	"internal/provision": {"internal/gtid", "topology", "binlog", "health", "failover", "internal/mysql"},
	"internal/api":       {"internal/gtid"},
	"internal/app":       {"internal/gtid", "topology", "binlog", "health", "failover", "internal/mysql", "internal/provision", "internal/api"},
	"cmd/repld":          {"internal/app"},
	"cmd/replctl":        {"internal/api"},
}

// isLeaf tells whether a package has no place in the order: anybody may import
// it, and it may import nothing of this module but leaves.
func isLeaf(pkg string) bool {
	_, placed := allowed[pkg]
	return !placed && strings.HasPrefix(pkg, "internal/")
}

// isFree tells whether a package is bound by no rule: tests and examples.
func isFree(pkg string) bool {
	return strings.HasPrefix(pkg, "test/") || strings.HasPrefix(pkg, "examples/")
}

// speakers are packages that only the named ones may import.
var speakers = map[string][]string{
	"database/sql":                              {"internal/mysql"},
	"database/sql/driver":                       {"internal/mysql"},
	"github.com/go-sql-driver/mysql":            {"internal/mysql"},
	"github.com/go-mysql-org/go-mysql/driver":   {},
	"github.com/go-mysql-org/go-mysql/client":   {"binlog"},
	"go.etcd.io/bbolt":                          {"topology"},
	"github.com/spf13/viper":                    {"internal/config"},
	"github.com/coreos/go-systemd/v22/daemon":   {"internal/app", "cmd/repld"},
	"github.com/go-mysql-org/go-mysql/canal":    {},
	"github.com/go-mysql-org/go-mysql/failover": {},
}

// pure are the files that decide: the same input gives the same answer in a
// test, in the explorer and in production.
var pure = []string{
	"internal/gtid/*.go",
	"failover/decide*.go",
	"failover/candidate*.go",
	"failover/problems*.go",
	"health/detector*.go",
	"binlog/lag*.go",
	"binlog/ring*.go",
}

// effects are packages, with all below them, that pure files may not import or
// reach through another function.
var effects = []string{
	"net", "os", "database/sql", "log", "math/rand", "crypto/rand", "syscall",
	"github.com/go-sql-driver", "github.com/go-mysql-org", "go.etcd.io",
}

// clock are the functions of package time that read or wait for a clock.
var clock = map[string]bool{
	"Now": true, "Since": true, "Until": true, "After": true, "AfterFunc": true,
	"Sleep": true, "NewTimer": true, "NewTicker": true, "Tick": true,
}

// isEffect tells whether a package is one of the effects or below one.
func isEffect(pkg string) bool {
	for _, e := range effects {
		if pkg == e || strings.HasPrefix(pkg, e+"/") {
			return true
		}
	}
	return false
}

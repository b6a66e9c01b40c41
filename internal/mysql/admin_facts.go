package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Setting is a global variable as the server runs with it.
type Setting struct {
	Value string
	// Origin is CONFIG, COMMAND-LINE, SQL, AUTO, ENVIRONMENT or COMPILE-TIME.
	Origin string
	// Path is the option file that the value came from, "" if none did.
	Path string
}

// Table names a table.
type Table struct {
	Schema, Name string
	// Engine is the storage engine.
	Engine string
}

// String is schema.table.
func (t Table) String() string { return t.Schema + "." + t.Name }

// Login is one row of the server's accounts.
type Login struct {
	User, Host string
	// TLS is ssl_type: "", ANY, X509 or SPECIFIED.
	TLS string
	// Plugin is the way it proves itself.
	Plugin string
}

// SlaveHost is a slave that is registered with its master.
type SlaveHost struct {
	ServerID uint32
	// Host is the slave's report_host, "" if it has none; Port its own.
	Host string
	Port uint16
}

// AdminFacts is what a server says about itself to an administrator: all that is
// judged before anything on it is changed.
type AdminFacts struct {
	Identity topology.Identity
	Flavor   topology.Flavor
	// Version is the whole version string, for example "10.11.19-MariaDB-log".
	Version string
	// Started is when the process started, on repld's clock (±1 s).
	Started time.Time
	// ClockOffset is the server's clock minus repld's.
	ClockOffset time.Duration
	// Settings are all global variables, by their lower-case names.
	Settings map[string]Setting
	// CurrentUser is the account that the login matched; Grants what it may do.
	CurrentUser string
	Grants      []string
	BinlogState gtid.State
	BinlogPos   gtid.Position
	SlavePos    gtid.Position
	// BinlogDoDB and BinlogIgnoreDB filter what the binary log holds.
	BinlogDoDB, BinlogIgnoreDB string
	// Slaves are the servers that replicate from this one; DumpThreads where the
	// dump threads' connections come from (host:port, or a host name).
	Slaves      []SlaveHost
	DumpThreads []string
	// Sources are the replication connections that are configured.
	Sources []SourceStatus
	// Schemas are the user's own, repld's and the system's left out.
	Schemas          []string
	NonTransactional []Table
	NoPrimaryKey     []Table
	Logins           []Login
	// Cluster is the row of repld.cluster, nil if there is none.
	Cluster *failover.ClusterRow
}

// SourceStatus is a replication connection as far as set-up is concerned.
type SourceStatus struct {
	Connection        string
	Host              string
	Port              uint16
	ServerID          uint32
	User              string
	UsingGTID         string
	IO, SQL           string
	LastIOError       string
	LastSQLError      string
	LogFile           string
	ReadPos, ExecPos  uint64
	ExecLogFile       string
	RelayLogFile      string
	Received          gtid.Position
	DoDB, IgnoreDB    string
	WildDo            string
	OtherFilters      bool
	Delay             time.Duration
	TLS, VerifyServer bool
}

// Value is a global variable's value, "" if the server does not know it.
func (f *AdminFacts) Value(name string) string { return f.Settings[name].Value }

// On tells whether a global variable is on.
func (f *AdminFacts) On(name string) bool { return isOn(f.Settings[name].Value) }

// systemSchemas are never anybody's data; repld is repld's own.
const systemSchemas = `'mysql','information_schema','performance_schema','sys','repld'`

// GatherAdminFacts asks a server all that set-up judges. It changes nothing. Each
// statement has its own deadline, for information_schema can be slow where
// there are very many tables.
func GatherAdminFacts(ctx context.Context, c *Conn) (*AdminFacts, error) {
	f := &AdminFacts{Settings: map[string]Setting{}}
	for _, step := range []func(context.Context, *Conn, *AdminFacts) error{
		factsSettings, factsClock, factsPrivileges, factsPositions, factsReplication, factsTables, factsLogins, factsMembership,
	} {
		bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := step(bounded, c, f)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("gather facts: %w", err)
		}
	}
	return f, nil
}

// factsSettings reads the variables with where each came from, which servers
// older than 10.5 cannot tell.
func factsSettings(ctx context.Context, c *Conn, f *AdminFacts) error {
	rows, err := c.Query(ctx, "SHOW GLOBAL VARIABLES")
	if err != nil {
		return err
	}
	for i := range rows {
		f.Settings[strings.ToLower(rows[i].String("Variable_name"))] = Setting{Value: rows[i].String("Value")}
	}
	f.Version = f.Value("version")
	if strings.Contains(f.Version, "MariaDB") {
		f.Flavor = topology.FlavorMariaDB
	}
	f.Identity = topology.Identity{
		ServerID: uint32(parseUint(f.Value("server_id"))),
		UID:      f.Value("server_uid"),
		Hostname: f.Value("hostname"),
		Port:     uint16(parseUint(f.Value("port"))),
		DataDir:  f.Value("datadir"),
	}
	rows, err = c.Query(ctx, "SELECT VARIABLE_NAME n, GLOBAL_VALUE_ORIGIN o, GLOBAL_VALUE_PATH p FROM information_schema.SYSTEM_VARIABLES")
	if Errno(err) != 0 {
		return nil // 1054 or 1109: this server is too old to say, which the version rule reports
	}
	if err != nil {
		return err
	}
	for i := range rows {
		name := strings.ToLower(rows[i].String("n"))
		if s, ok := f.Settings[name]; ok {
			s.Origin, s.Path = rows[i].String("o"), rows[i].String("p")
			f.Settings[name] = s
		}
	}
	return nil
}

func factsClock(ctx context.Context, c *Conn, f *AdminFacts) error {
	sent := time.Now()
	row, err := c.QueryRow(ctx, "SELECT UNIX_TIMESTAMP(SYSDATE(6)) t, (SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME='UPTIME') u")
	if err != nil {
		return err
	}
	took := time.Since(sent)
	if row != nil {
		now := time.UnixMicro(int64(row.Float("t") * 1e6))
		f.ClockOffset = now.Sub(sent.Add(took / 2)).Round(time.Millisecond)
		f.Started = sent.Add(-time.Duration(row.Uint("u")) * time.Second)
	}
	return nil
}

func factsPrivileges(ctx context.Context, c *Conn, f *AdminFacts) error {
	row, err := c.QueryRow(ctx, "SELECT CURRENT_USER() u")
	if err != nil {
		return err
	}
	if row != nil {
		f.CurrentUser = row.String("u")
	}
	f.Grants, err = column(ctx, c, "SHOW GRANTS")
	return err
}

func factsPositions(ctx context.Context, c *Conn, f *AdminFacts) (err error) {
	if f.BinlogState, err = gtid.ParseState(f.Value("gtid_binlog_state")); err != nil {
		return err
	}
	if f.BinlogPos, err = gtid.ParsePosition(f.Value("gtid_binlog_pos")); err != nil {
		return err
	}
	f.SlavePos, err = gtid.ParsePosition(f.Value("gtid_slave_pos"))
	return err
}

// factsTables lists what replicates badly.
func factsTables(ctx context.Context, c *Conn, f *AdminFacts) (err error) {
	if f.Schemas, err = column(ctx, c, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN ("+systemSchemas+
		") AND SCHEMA_NAME NOT LIKE '#mysql50#%' ORDER BY 1"); err != nil {
		return err
	}
	engines, err := pairs(ctx, c, "SELECT ENGINE AS a, TRANSACTIONS AS b FROM information_schema.ENGINES")
	if err != nil {
		return err
	}
	for _, schema := range f.Schemas {
		if err := factsOfSchema(ctx, c, f, schema, engines); err != nil {
			return err
		}
	}
	return nil
}

// factsOfSchema asks schema by schema, and joins here: asked for all schemas at
// once the server opens the views of sys too, and a join of these tables was
// seen to crash 10.11.19 in there while tables were being made and dropped.
func factsOfSchema(ctx context.Context, c *Conn, f *AdminFacts, schema string, engines map[[2]string]bool) error {
	rows, err := c.Query(ctx, "SELECT TABLE_NAME AS n, ENGINE AS e FROM information_schema.TABLES WHERE TABLE_SCHEMA=? AND TABLE_TYPE='BASE TABLE'", schema)
	if err != nil {
		return err
	}
	keyed, err := pairs(ctx, c, "SELECT TABLE_SCHEMA AS a, TABLE_NAME AS b FROM information_schema.STATISTICS WHERE TABLE_SCHEMA=? AND NON_UNIQUE=0 AND NULLABLE<>'YES'", schema)
	if err != nil {
		return err
	}
	for i := range rows {
		t := Table{Schema: schema, Name: rows[i].String("n"), Engine: rows[i].String("e")}
		if !engines[[2]string{t.Engine, "YES"}] && len(f.NonTransactional) < maxTables {
			f.NonTransactional = append(f.NonTransactional, t)
		}
		if !keyed[[2]string{schema, t.Name}] && len(f.NoPrimaryKey) < maxTables {
			f.NoPrimaryKey = append(f.NoPrimaryKey, t)
		}
	}
	return nil
}

// maxTables is how many tables of a kind are listed, for a person reads them.
const maxTables = 200

// pairs is the set of a query's rows.
func pairs(ctx context.Context, c *Conn, query string, args ...any) (map[[2]string]bool, error) {
	rows, err := c.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	out := make(map[[2]string]bool, len(rows))
	for i := range rows {
		out[[2]string{rows[i].String("a"), rows[i].String("b")}] = true
	}
	return out, nil
}

// factsLogins reads the accounts, if the administrator may.
func factsLogins(ctx context.Context, c *Conn, f *AdminFacts) error {
	rows, err := c.Query(ctx, "SELECT User u, Host h, ssl_type t, plugin p FROM mysql.user WHERE Host<>'' ORDER BY 1,2")
	if Errno(err) != 0 {
		return nil // not allowed to: the rule about privileges says so
	}
	if err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		f.Logins = append(f.Logins, Login{User: r.String("u"), Host: r.String("h"), TLS: r.String("t"), Plugin: r.String("p")})
	}
	return nil
}

// column is the first column of each row.
func column(ctx context.Context, c *Conn, query string, args ...any) ([]string, error) {
	rows, err := c.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range rows {
		for name := range rows[i].columns {
			out = append(out, rows[i].String(name))
			break
		}
	}
	return out, nil
}

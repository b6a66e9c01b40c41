package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// AccountName is 'user'@'host'; a role has no host.
type AccountName struct {
	User string `json:"user"`
	Host string `json:"host"`
	Role bool   `json:"role,omitempty"`
}

// String is user@host, or the role's name.
func (a AccountName) String() string {
	if a.Role {
		return "role " + a.User
	}
	return a.User + "@" + a.Host
}

// SchemaInfo is one schema and how much it holds.
type SchemaInfo struct {
	Name string `json:"name"`
	// Objects counts its tables, views, routines and events.
	Objects int `json:"objects"`
	// Bytes is the server's own estimate of its tables' data and indexes.
	Bytes uint64 `json:"bytes"`
}

// Holdings is what a server holds that somebody may miss: its schemas and its
// accounts, but for those that every server has.
type Holdings struct {
	// Schemas without those of the server itself, sorted by name.
	Schemas []SchemaInfo
	// Accounts and roles, without those of a fresh installation.
	Accounts []AccountName
}

// OwnSchema is the schema that repld keeps on a cluster, replicated like any
// other.
const OwnSchema = "repld"

// IsSystemSchema tells whether a schema belongs to the server itself: it is
// neither copied nor counted as anybody's data.
func IsSystemSchema(name string) bool {
	switch strings.ToLower(name) {
	case "mysql", "information_schema", "performance_schema", "sys":
		return true
	}
	// A directory that is no schema, such as lost+found in a file system's root.
	return strings.HasPrefix(name, "#mysql50#")
}

// IsInstallAccount tells whether an account is one that an installation makes
// by itself, which says nothing about data.
func IsInstallAccount(a AccountName) bool {
	switch {
	case a.User == "": // anonymous
		return true
	case a.Role:
		return strings.EqualFold(a.User, "public")
	}
	switch a.User {
	case "root", "mariadb.sys", "mysql", "debian-sys-maint":
		return true
	}
	return false
}

// Data are the schemas that are somebody's data: neither repld's own nor the
// empty "test" of a fresh installation.
func (h Holdings) Data() []SchemaInfo {
	var out []SchemaInfo
	for _, s := range h.Schemas {
		if s.Name == OwnSchema || (s.Name == "test" && s.Objects == 0) {
			continue
		}
		out = append(out, s)
	}
	return out
}

// OtherAccounts are the accounts that are neither of a fresh installation nor
// among those of the named users, which are repld's own or the one in use.
func (h Holdings) OtherAccounts(except ...string) []AccountName {
	var out []AccountName
	for _, a := range h.Accounts {
		if !slices.Contains(except, a.User) {
			out = append(out, a)
		}
	}
	return out
}

// Bytes is the estimate for all schemas.
func (h Holdings) Bytes() uint64 {
	var sum uint64
	for _, s := range h.Schemas {
		sum += s.Bytes
	}
	return sum
}

// Survey looks at what a server holds.
func Survey(ctx context.Context, c *Conn) (Holdings, error) {
	var h Holdings
	rows, err := c.Query(ctx, `SELECT s.SCHEMA_NAME AS name,
		COALESCE(t.n,0)+COALESCE(r.n,0)+COALESCE(e.n,0) AS objects, COALESCE(t.bytes,0) AS bytes
		FROM information_schema.SCHEMATA s
		LEFT JOIN (SELECT TABLE_SCHEMA, COUNT(*) AS n, SUM(COALESCE(DATA_LENGTH,0)+COALESCE(INDEX_LENGTH,0)) AS bytes
			FROM information_schema.TABLES
			WHERE TABLE_SCHEMA NOT IN ('mysql','sys','information_schema','performance_schema') GROUP BY TABLE_SCHEMA) t ON t.TABLE_SCHEMA=s.SCHEMA_NAME
		LEFT JOIN (SELECT ROUTINE_SCHEMA, COUNT(*) AS n FROM information_schema.ROUTINES GROUP BY ROUTINE_SCHEMA) r ON r.ROUTINE_SCHEMA=s.SCHEMA_NAME
		LEFT JOIN (SELECT EVENT_SCHEMA, COUNT(*) AS n FROM information_schema.EVENTS GROUP BY EVENT_SCHEMA) e ON e.EVENT_SCHEMA=s.SCHEMA_NAME
		ORDER BY s.SCHEMA_NAME`)
	if err != nil {
		return h, fmt.Errorf("list schemas: %w", err)
	}
	for _, r := range rows {
		if name := r.String("name"); !IsSystemSchema(name) {
			h.Schemas = append(h.Schemas, SchemaInfo{Name: name, Objects: int(r.Uint("objects")), Bytes: uint64(r.Float("bytes"))})
		}
	}
	accounts, err := listAccounts(ctx, c)
	if err != nil {
		return h, err
	}
	for _, a := range accounts {
		if !IsInstallAccount(a) {
			h.Accounts = append(h.Accounts, a)
		}
	}
	return h, nil
}

func listAccounts(ctx context.Context, c *Conn) ([]AccountName, error) {
	rows, err := c.Query(ctx, `SELECT User AS user, Host AS host, COALESCE(JSON_VALUE(Priv,'$.is_role'),0) AS role
		FROM mysql.global_priv ORDER BY User, Host`)
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	out := make([]AccountName, 0, len(rows))
	for _, r := range rows {
		out = append(out, AccountName{User: r.String("user"), Host: r.String("host"), Role: r.Bool("role") || r.String("role") == "true"})
	}
	return out, nil
}

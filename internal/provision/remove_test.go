package provision

import (
	"os"
	"testing"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

// With --purge-config nothing of repld's is left, without an administrator's
// login, and a restart shows an ordinary server with its data.
func TestRemovePurgesEverythingOfRepld(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{Anonymous: true})
	s.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
	p, m := newProvisioner(t)
	mustInit(t, p, m, s)

	_, err := p.Remove(t.Context(), RemoveRequest{Name: s.Name, PurgeConfig: true})
	wantFault(t, err, fault.Unconfirmed, "not_confirmed", "Remove "+s.Name)
	_, err = p.Remove(t.Context(), RemoveRequest{Name: "nobody", Confirmed: true})
	wantFault(t, err, fault.Usage, "unknown_server", s.Name)

	res, err := p.Remove(t.Context(), RemoveRequest{Name: s.Name, PurgeConfig: true, Confirmed: true})
	if err != nil || !res.Changed || len(res.Warnings) > 0 {
		t.Fatalf("remove: %v, %+v", err, res)
	}
	// Killed before it was forgotten: the second run finishes.
	res, err = p.Remove(t.Context(), RemoveRequest{Name: s.Name, PurgeConfig: true, Confirmed: true})
	if err != nil || !res.Changed {
		t.Fatalf("the second remove: %v, %+v", err, res)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"SELECT @@read_only": "0", "SELECT @@log_bin": "0", "SELECT @@have_ssl": "DISABLED", "SELECT COUNT(*) FROM app.t": "1",
		"SELECT COUNT(*) FROM mysql.user WHERE User LIKE 'repld%'":                   "0",
		"SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME='repld'": "0",
	} {
		if v := s.MustValue(t, query); v != want {
			t.Errorf("%s is %s, want %s", query, v, want)
		}
	}
	for _, path := range []string{s.DropInPath(), s.DataDir + "/" + fileKey, s.DataDir + "/" + fileCert, s.DataDir + "/" + fileCA} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

// A purged server that was not restarted still runs with what repld set: set up
// again, it gets everything that its next start needs.
func TestAPurgedServerIsSetUpAgainWithoutARestart(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	p, m := newProvisioner(t)
	mustInit(t, p, m, s)
	if _, err := p.Remove(t.Context(), RemoveRequest{Name: s.Name, PurgeConfig: true, Confirmed: true}); err != nil {
		t.Fatal(err)
	}
	delete(m.clusters, "main")
	delete(m.accounts, "main")
	mustInit(t, p, m, s)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{"SELECT @@read_only": "1", "SELECT @@log_bin": "1", "SELECT @@have_ssl": "YES"} {
		if v := s.MustValue(t, query); v != want {
			t.Errorf("%s is %s, want %s", query, v, want)
		}
	}
}

func TestRemoveOfAMasterWithSlavesIsRefused(t *testing.T) {
	c := topology.Cluster{Name: "main", Master: "db1", Servers: map[string]*topology.Server{
		"db1": {Name: "db1", Role: topology.RoleMaster}, "db2": {Name: "db2", Role: topology.RoleSlave, Source: "db1"}}}
	_, err := PlanRemove(RemoveRequest{Cluster: "main", Name: "db1"}, c)
	wantFault(t, err, fault.Refused, "has_slaves", "db2")
	if _, err := PlanRemove(RemoveRequest{Cluster: "main", Name: "db2"}, c); err != nil {
		t.Errorf("a slave: %v", err)
	}
	c.Intent = &topology.Intent{Kind: topology.IntentFailover}
	_, err = PlanRemove(RemoveRequest{Cluster: "main", Name: "db2"}, c)
	wantFault(t, err, fault.Refused, "intent_open", "failover")
}

// A server that is gone for good can be forgotten, but not purged.
func TestRemoveOfAnUnreachableServer(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	p, m := newProvisioner(t)
	mustInit(t, p, m, s)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err := p.Remove(t.Context(), RemoveRequest{Name: s.Name, PurgeConfig: true, Confirmed: true})
	wantFault(t, err, fault.Failed, "unreachable", "without --purge-config")
	res, err := p.Remove(t.Context(), RemoveRequest{Name: s.Name, Confirmed: true})
	if err != nil || !res.Changed || len(res.Warnings) != 1 {
		t.Fatalf("remove: %v, %+v", err, res)
	}
}

package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

// memory is repld's state as far as this package needs it: what is pending, and
// the clusters that were recorded. Pending goes through JSON, as it does in a
// store.
type memory struct {
	mu       sync.Mutex
	pending  map[string][]byte
	clusters map[string]topology.Cluster
	accounts map[string]topology.Accounts
	steps    []string
	// onSave may fail a save, to interrupt a verb where it would be killed.
	onSave func(Pending) error
	onStep func(step, status string)
}

func (m *memory) Pending(_ context.Context, cluster, server string) (p Pending, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if text := m.pending[cluster+"/"+server]; text != nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

func (m *memory) Save(_ context.Context, cluster, server string, p Pending) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.pending[cluster+"/"+server] = text
	m.mu.Unlock()
	if m.onSave != nil {
		return m.onSave(p)
	}
	return nil
}

func (m *memory) known() []Known {
	var out []Known
	for _, c := range m.clusters {
		for _, s := range c.Servers {
			out = append(out, Known{Cluster: c.Name, Name: s.Name, Address: s.Address, Identity: s.Identity, Version: s.Version})
		}
	}
	return out
}

// recordMaster does what the daemon does with the result.
func (m *memory) recordMaster(cluster string, res *MasterResult) {
	srv := res.Server
	m.clusters[cluster] = topology.Cluster{
		Name: cluster, ID: res.ClusterID, Epoch: 1, Master: srv.Name, Lineage: gtid.Lineage{res.Era}, Start: &res.GTIDBefore, Durability: topology.SemiSync,
		Servers: map[string]*topology.Server{srv.Name: &srv},
	}
	m.accounts[cluster] = res.Accounts
	delete(m.pending, cluster+"/"+srv.Name)
}

// clientWitness reads the binary log with the server's own client.
type clientWitness struct {
	caFile string
	on     mysql.Target
}

func (w clientWitness) Watch(_ context.Context, on mysql.Target) (Watch, error) {
	w.on = on
	return w, nil
}

func (w clientWitness) Close() {}

func (w clientWitness) Wait(ctx context.Context, want gtid.GTID) error {
	on := w.on
	host, port, _, err := ParseAddress(on.Address)
	if err != nil {
		return err
	}
	for {
		cmd := exec.CommandContext(ctx, "mariadb-binlog", "--no-defaults", "--read-from-remote-server", "--host="+host, fmt.Sprintf("--port=%d", port),
			"--user="+on.User, "--ssl-ca="+w.caFile, "--ssl-verify-server-cert", "--to-last-log", "mariadb-bin.000001")
		cmd.Env = append(os.Environ(), "MYSQL_PWD="+on.Password)
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "GTID "+want.String()+" ") {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w: %s", ctx.Err(), err, out)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// newProvisioner is a provisioner with an empty state.
func newProvisioner(t *testing.T) (*Provisioner, *memory) {
	t.Helper()
	m := &memory{pending: map[string][]byte{}, clusters: map[string]topology.Cluster{}, accounts: map[string]topology.Accounts{}}
	dir := filepath.Join(t.TempDir(), "repld")
	p := &Provisioner{
		DataDir: dir, Instance: "instance-1", ServerTimeout: 30 * time.Second, Durability: topology.SemiSync,
		Cluster:  func(name string) topology.Cluster { return m.clusters[name] },
		Known:    m.known,
		Accounts: func(name string) topology.Accounts { return m.accounts[name] },
		Journal:  m, Witness: clientWitness{caFile: filepath.Join(dir, "ca", "ca.pem")},
		Progress: func(step, server, status, text string) {
			m.steps = append(m.steps, step+" "+status)
			if m.onStep != nil {
				m.onStep(step, status)
			}
		},
		Timeouts: Timeouts{Restart: 60 * time.Second, Back: 30 * time.Second},
	}
	return p, m
}

func requestFor(s *mariadb.Server) Request {
	return Request{
		Name: s.Name, Address: s.Addr(), Admin: Admin{User: s.AdminUser, Password: s.AdminPassword},
		ConfigFile: s.DropInPath(), RestartCommand: s.RestartCommand(), Restart: RestartNow,
	}
}

// mustInit makes s the master of cluster main.
func mustInit(t *testing.T, p *Provisioner, m *memory, s *mariadb.Server) *MasterResult {
	t.Helper()
	res, err := p.InitMaster(t.Context(), MasterRequest{requestFor(s)})
	if err != nil {
		t.Fatalf("init master: %v", err)
	}
	m.recordMaster("main", res)
	return res
}

// wantFault checks kind and code, and that all four parts are there.
func wantFault(t *testing.T, err error, kind fault.Kind, code string, parts ...string) *fault.Error {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) {
		t.Fatalf("want a fault %s, got %v", code, err)
	}
	if f.Kind != kind || f.Code != code {
		t.Fatalf("want kind %d code %s, got kind %d code %s: %v", kind, code, f.Kind, f.Code, f)
	}
	if f.What == "" || f.State == "" || f.Do == "" {
		t.Errorf("a part is missing: %#v", f)
	}
	for _, p := range parts {
		if !strings.Contains(f.Error(), p) {
			t.Errorf("want %q in: %v", p, f)
		}
	}
	if strings.Contains(f.Error()+f.Document, mariadb.AdminPassword) {
		t.Errorf("the password shows in: %v", f)
	}
	return f
}

package provision

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
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
		Journal:  m, Witness: StreamWitness{ServerID: 4_000_000_001},
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

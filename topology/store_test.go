package topology

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/repld/repld/internal/gtid"
)

const secret = "s3cret-Passw0rd-that-must-not-be-seen"

// place is a directory with a state file and its key.
type place struct{ state, key string }

func newPlace(t *testing.T) place {
	dir := filepath.Join(t.TempDir(), "data")
	return place{filepath.Join(dir, "state.db"), filepath.Join(dir, "key")}
}

func (p place) open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(p.state, p.key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sample is a cluster with accounts, an operation and three servers.
func sample(t *testing.T, s *Store) {
	t.Helper()
	must(t, s.Apply(CreateCluster{Name: "main", ID: "c1", Durability: SemiSync}))
	must(t, s.PutAccounts("main", Accounts{AccountRepld: {Purpose: AccountRepld, User: "repld", Password: secret}}))
	for i := range 3 {
		must(t, s.Apply(PutServer{"main", member(i)}))
	}
	must(t, s.Apply(FoundEra{Cluster: "main", Master: "db1", Era: gtid.Era{Epoch: 1, Server: 1, First: 1}, At: time.Unix(100, 0).UTC()}))
	_, err := s.NewOperation(Operation{Cluster: "main", Kind: OpInit, Result: ResultDone, StartedAt: time.Unix(100, 0).UTC()})
	must(t, err)
}

func member(i int) Server {
	name := fmt.Sprintf("db%d", i+1)
	return Server{Name: name, Address: name + ":3306", Role: RoleSlave, Identity: Identity{ServerID: uint32(i + 1), UID: name}, Promotion: PromotionNeutral}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// 1. What was applied is there after the file is opened again.
// 2. An error changes nothing, also of what came before it in the same Apply.
// 3. What a reader was given never changes.
func TestApply(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	sample(t, s)
	before := s.Cluster("main")
	err := s.Apply(SetPause{Cluster: "main", Paused: true}, MarkJoining{"main", "nobody", true})
	if !errors.Is(err, ErrNoServer) {
		t.Errorf("an unknown server: %v", err)
	}
	if diff := cmp.Diff(before, s.Cluster("main")); diff != "" {
		t.Errorf("a refused change left:\n%s", diff)
	}
	changed, stop := s.Changed()
	defer stop()
	must(t, s.Apply(SetPause{Cluster: "main", Paused: true}, MarkJoining{"main", "db2", true}))
	select {
	case <-changed:
	default:
		t.Error("the change was not announced")
	}
	if before.Paused || before.Servers["db2"].Joining {
		t.Error("a snapshot changed under its reader")
	}
	after := s.Cluster("main")
	instance := s.Instance()
	must(t, s.Close())

	s = p.open(t)
	defer s.Close()
	if diff := cmp.Diff(after, s.Cluster("main")); diff != "" || !after.Paused {
		t.Errorf("after opening again:\n%s", diff)
	}
	if got := s.Accounts("main")[AccountRepld].Password; got != secret {
		t.Errorf("password %q", got)
	}
	if ops, err := s.Operations("main", 0); err != nil || len(ops) != 1 || ops[0].ID != "1" {
		t.Errorf("operations %v, %v", ops, err)
	}
	if s.Instance() != instance || instance == "" {
		t.Errorf("instance %q was %q", s.Instance(), instance)
	}
}

func TestALockedFile(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	defer s.Close()
	if _, err := Open(p.state, p.key); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
}

// closed makes a state file of some pages and gives its bytes and its cluster.
func closed(t *testing.T, p place) ([]byte, *Cluster) {
	t.Helper()
	s := p.open(t)
	sample(t, s)
	for i := range 40 { // more than one page of history
		_, err := s.NewOperation(Operation{Cluster: "main", Kind: OpFailover, Result: ResultDone, Detail: strings.Repeat("x", 200+i)})
		must(t, err)
	}
	must(t, s.Apply(SetPause{Cluster: "main", Paused: true})) // the last change must not be lost
	c := s.Cluster("main")
	must(t, s.Close())
	raw, err := os.ReadFile(p.state)
	must(t, err)
	return raw, c
}

// damaged expects that a file is refused as damaged, or holds the whole truth.
// An older truth would be worse than none: it must not open.
func damaged(t *testing.T, what string, p place, raw []byte, want *Cluster) (refused bool) {
	t.Helper()
	must(t, os.WriteFile(p.state, raw, 0o600))
	s, err := Open(p.state, p.key)
	if err != nil {
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v does not say that the file is damaged", what, err)
		}
		return true
	}
	if diff := cmp.Diff(want, s.Cluster("main")); diff != "" {
		t.Errorf("%s: opened with another state:\n%s", what, diff)
	}
	if got := s.Accounts("main")[AccountRepld].Password; got != secret {
		t.Errorf("%s: opened with the password %q", what, got)
	}
	must(t, s.Close())
	return false
}

func TestADamagedFile(t *testing.T) {
	p := newPlace(t)
	raw, want := closed(t, p)
	const page = 4096
	if len(raw) < 8*page {
		t.Fatalf("only %d bytes to damage", len(raw))
	}
	if damaged(t, "as it was", p, raw, want) {
		t.Fatal("the sound file does not open")
	}
	if !damaged(t, "empty", p, nil, want) {
		t.Error("an empty file was taken for a new one")
	}
	for size := 100; size < 6*page; size += 1000 {
		if !damaged(t, fmt.Sprintf("cut to %d bytes", size), p, raw[:size], want) {
			t.Errorf("cut to %d bytes, it opens", size)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	refusals := 0
	for at := 0; at+page <= len(raw); at += page {
		for range 3 {
			bad := bytes.Clone(raw)
			for i := range page {
				bad[at+i] = byte(rnd.Uint32())
			}
			if damaged(t, fmt.Sprintf("random bytes in page %d", at/page), p, bad, want) {
				refusals++
			}
			bad = bytes.Clone(raw)
			clear(bad[at : at+page])
			if damaged(t, fmt.Sprintf("zeroes in page %d", at/page), p, bad, want) {
				refusals++
			}
		}
	}
	for at := range 2 { // without its newest meta page, bbolt shows the state before the last change
		bad := bytes.Clone(raw)
		bad[at*page+pageHeader+metaSum-1]++
		if !damaged(t, fmt.Sprintf("one bit in meta page %d", at), p, bad, want) {
			t.Errorf("one bit in meta page %d: it opens", at)
		}
	}
	if refusals < 12 {
		t.Errorf("only %d damaged files were refused", refusals)
	}
	t.Logf("%d pages, %d damaged files refused", len(raw)/page, refusals)
}

// A file that is gone although its backup or its key is there was lost.
func TestALostFile(t *testing.T) {
	p := newPlace(t)
	closed(t, p)
	must(t, os.Remove(p.state))
	if _, err := Open(p.state, p.key); !errors.Is(err, ErrDamaged) {
		t.Errorf("with its backup and key: %v", err)
	}
	must(t, os.Remove(BackupPath(p.state)))
	if _, err := Open(p.state, p.key); !errors.Is(err, ErrDamaged) {
		t.Errorf("with its key: %v", err)
	}
}

// After each change of topology a copy that was read back whole takes the place
// of the former one, and opens like the state file itself.
func TestTheBackup(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	sample(t, s)
	must(t, s.Apply(PutServer{"main", member(3)}))
	want := s.Cluster("main")
	must(t, s.Close())
	if err := s.BackupError(); err != nil {
		t.Fatal(err)
	}
	other := newPlace(t)
	must(t, os.MkdirAll(filepath.Dir(other.state), 0o700))
	for from, to := range map[string]string{BackupPath(p.state): other.state, p.key: other.key} {
		raw, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(to, raw, 0o600))
	}
	s = other.open(t)
	defer s.Close()
	if diff := cmp.Diff(want, s.Cluster("main")); diff != "" {
		t.Errorf("the backup differs:\n%s", diff)
	}
}

// A backup that cannot be written is reported, and the former one stays.
func TestABackupThatFails(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	sample(t, s)
	must(t, s.Close()) // which waits for the backup
	s = p.open(t)
	good, err := os.ReadFile(BackupPath(p.state))
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(BackupPath(p.state)+".tmp", "in the way"), 0o700))
	must(t, s.Apply(PutServer{"main", member(3)}))
	must(t, s.Close())
	if s.BackupError() == nil {
		t.Error("no error")
	}
	if now, err := os.ReadFile(BackupPath(p.state)); err != nil || !bytes.Equal(good, now) {
		t.Errorf("the former backup changed: %v", err)
	}
}

func TestPasswordsAreSealed(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	sample(t, s)
	must(t, s.PutAccounts("main", Accounts{AccountReplication: {User: "repl", Password: secret + "2"}}))
	must(t, s.Close())
	files, err := os.ReadDir(filepath.Dir(p.state))
	must(t, err)
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(p.state), f.Name()))
		must(t, err)
		if bytes.Contains(raw, []byte(secret)) {
			t.Errorf("%s shows a password", f.Name())
		}
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

func TestTheKeyFile(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(key string) error
		damaged bool
	}{
		"another key": {func(key string) error { return os.WriteFile(key, bytes.Repeat([]byte{7}, keySize), 0o600) }, true},
		"too short":   {func(key string) error { return os.WriteFile(key, []byte("short"), 0o600) }, true},
		"missing":     {os.Remove, false},
		"readable":    {func(key string) error { return os.Chmod(key, 0o644) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			raw, _ := closed(t, p)
			must(t, c.spoil(p.key))
			_, err := Open(p.state, p.key)
			if err == nil {
				t.Fatal("it opens")
			}
			if errors.Is(err, ErrDamaged) != c.damaged || !strings.Contains(err.Error(), "key") {
				t.Errorf("error: %v", err)
			}
			if strings.Contains(err.Error(), secret) {
				t.Error("the error shows a password")
			}
			if now, err := os.ReadFile(p.state); err != nil || !bytes.Equal(raw, now) {
				t.Errorf("the state file was changed: %v", err)
			}
			if name == "missing" {
				if _, err := os.Stat(p.key); !errors.Is(err, os.ErrNotExist) {
					t.Error("a new key was made beside what only the old one opens")
				}
			}
		})
	}
}

package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Buckets of the state file.
var (
	bucketMeta       = []byte("meta")
	bucketClusters   = []byte("clusters")
	bucketAccounts   = []byte("accounts")
	bucketOperations = []byte("operations")
	bucketPending    = []byte("pending")

	keyVersion  = []byte("version")
	keyInstance = []byte("instance")
)

// formatVersion is the state file's format; a newer one is refused.
const formatVersion = "1"

// Errors of Open.
var (
	// ErrLocked: another process has the state file open.
	ErrLocked = errors.New("state file is in use by another repld")
	// ErrDamaged: the state file cannot be read as a whole. Nothing may be done
	// about any cluster until it is restored.
	ErrDamaged = errors.New("state file is damaged")
)

// Store is repld's memory: one bbolt file, and a snapshot of it in memory that
// readers use. Every change is on disk (fsync) before Apply returns and before
// a reader sees it.
type Store struct {
	path     string
	instance string
	keys     *keyring
	setBack  time.Duration

	mu       sync.Mutex // serialises Apply
	db       *bolt.DB
	state    atomic.Pointer[State] // never modified once stored
	accounts atomic.Pointer[map[string]Accounts]
	watch    watchers
	backup   backups
}

// Open opens, or creates, the state file at path and checks all of it. The key
// that seals passwords is in the file keyPath, created with mode 0600 beside a
// new state file. It fails with an error that wraps [ErrLocked] or
// [ErrDamaged]; an empty file is damaged, not new.
func Open(path, keyPath string) (*Store, error) {
	fresh, err := checkFiles(path, keyPath)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path}
	var file *os.File // bbolt does not close it if it panics
	openFile := func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag, mode)
		if file == nil { // later calls are for copies
			file = f
		}
		return f, err
	}
	err = guarded(func() error {
		db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, FreelistType: bolt.FreelistMapType, OpenFile: openFile})
		if err != nil {
			return err
		}
		s.db = db
		if fresh {
			if err := s.create(); err != nil {
				return err
			}
		}
		// The key comes after the file: a start that is cut off between them leaves
		// a file without anything sealed, for which a key may be made.
		if s.keys, err = loadKey(keyPath, s.sealsNothing()); err != nil {
			return err
		}
		return s.load()
	})
	if err != nil {
		s.closeDB()
		letGo(file)
		switch {
		case errors.Is(err, berrors.ErrTimeout):
			return nil, fmt.Errorf("%s: %w", path, ErrLocked)
		case errors.Is(err, os.ErrPermission), errors.Is(err, ErrDamaged), errors.Is(err, errKey):
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		return nil, fmt.Errorf("open %s: %w: %w", path, ErrDamaged, err)
	}
	s.backup.init(s)
	return s, nil
}

// letGo gives up the lock on a file that bbolt did not close. Closing it is not
// enough: the memory map that bbolt leaves behind keeps the lock.
func letGo(file *os.File) {
	if file != nil {
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
		_ = file.Close()
	}
}

// checkFiles tells whether the state is new, and refuses states that look like
// a lost or emptied file.
func checkFiles(path, keyPath string) (fresh bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false, fmt.Errorf("state directory: %w", err)
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		for _, trace := range []string{BackupPath(path), keyPath} {
			if _, err := os.Stat(trace); err == nil {
				return false, fmt.Errorf("%s is missing although %s exists: %w", path, trace, ErrDamaged)
			}
		}
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("state file: %w", err)
	}
	if info.Size() == 0 {
		return false, fmt.Errorf("%s is empty: %w", path, ErrDamaged)
	}
	if err := checkMetas(path); err != nil {
		return false, fmt.Errorf("open %s: %w", path, err)
	}
	return false, nil
}

// sealsNothing tells whether the file holds nothing that is sealed.
func (s *Store) sealsNothing() bool {
	nothing := true
	err := s.db.View(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketAccounts, bucketPending} {
			if b := tx.Bucket(name); b != nil {
				if k, _ := b.Cursor().First(); k != nil {
					nothing = false
				}
			}
		}
		return nil
	})
	return err == nil && nothing
}

// load reads and checks everything.
func (s *Store) load() error {
	state, accounts := &State{Clusters: map[string]*Cluster{}}, map[string]Accounts{}
	err := s.db.View(func(tx *bolt.Tx) error {
		if err := checkSize(tx, s.path); err != nil {
			return err
		}
		for err := range tx.Check() {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		meta := tx.Bucket(bucketMeta)
		if meta == nil {
			return fmt.Errorf("no meta bucket: %w", ErrDamaged)
		}
		if v := string(meta.Get(keyVersion)); v != formatVersion {
			return fmt.Errorf("its format is %q, this repld reads %q: %w", v, formatVersion, ErrDamaged)
		}
		s.instance = string(meta.Get(keyInstance))
		if tx.Bucket(bucketPending) == nil {
			return fmt.Errorf("no pending bucket: %w", ErrDamaged)
		}
		if err := readClusters(tx, state); err != nil {
			return err
		}
		if err := s.readAccounts(tx, accounts); err != nil {
			return err
		}
		return checkOperations(tx)
	})
	if err != nil {
		return err
	}
	s.setBack = rebase(state, time.Now())
	s.state.Store(state)
	s.accounts.Store(&accounts)
	return nil
}

func (s *Store) create() error {
	instance, err := randomID()
	if err != nil {
		return err
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketMeta, bucketClusters, bucketAccounts, bucketOperations, bucketPending} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		meta := tx.Bucket(bucketMeta)
		if err := meta.Put(keyVersion, []byte(formatVersion)); err != nil {
			return err
		}
		return meta.Put(keyInstance, []byte(instance))
	})
}

func readClusters(tx *bolt.Tx, state *State) error {
	b := tx.Bucket(bucketClusters)
	if b == nil {
		return fmt.Errorf("no clusters bucket: %w", ErrDamaged)
	}
	return b.ForEach(func(k, v []byte) error {
		c := &Cluster{}
		if err := json.Unmarshal(v, c); err != nil {
			return fmt.Errorf("cluster %q: %w: %w", k, ErrDamaged, err)
		}
		if c.Name != string(k) || (c.Master != "" && c.Servers[c.Master] == nil) {
			return fmt.Errorf("cluster %q contradicts itself: %w", k, ErrDamaged)
		}
		state.Clusters[c.Name] = c
		return nil
	})
}

// ClockSetBack is by how much, at least, the host's clock was set back between
// the last change of the state and its opening; 0 if that is not known of. The
// times in the state were put back by as much.
func (s *Store) ClockSetBack() time.Duration { return s.setBack }

// Instance identifies this state file among all replds; it is also written
// into repld.cluster.
func (s *Store) Instance() string { return s.instance }

// Cluster gives a copy of a cluster, nil if there is none of that name.
func (s *Store) Cluster(name string) *Cluster {
	return s.state.Load().Clusters[name].Clone()
}

// Clusters lists the names of all clusters in alphabetical order.
func (s *Store) Clusters() []string {
	return slices.Sorted(maps.Keys(s.state.Load().Clusters))
}

// Apply carries out commands in one transaction: all or none. When it returns
// without error they are on disk.
func (s *Store) Apply(cmds ...Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, changed, structural, err := s.state.Load().apply(cmds)
	if err != nil {
		return err
	}
	err = s.update(func(tx *bolt.Tx) error { return writeClusters(tx, next, changed) })
	if err != nil {
		return err
	}
	s.state.Store(next)
	if structural {
		s.backup.due()
	}
	s.watch.notify()
	return nil
}

func writeClusters(tx *bolt.Tx, next *State, changed map[string]bool) error {
	b := tx.Bucket(bucketClusters)
	for name := range changed {
		c := next.Clusters[name]
		if c == nil {
			if err := b.Delete([]byte(name)); err != nil {
				return err
			}
			continue
		}
		raw, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if err := b.Put([]byte(name), raw); err != nil {
			return err
		}
	}
	return nil
}

// update runs a write transaction; bbolt may panic on a damaged page, which
// becomes an error here.
func (s *Store) update(fn func(*bolt.Tx) error) error {
	err := guarded(func() error { return s.db.Update(fn) })
	if err != nil {
		return fmt.Errorf("write %s: %w", s.path, err)
	}
	return nil
}

// Changed gives a channel that receives after each change of the state; a
// slow reader misses none but the count. Stop it with the returned function.
func (s *Store) Changed() (<-chan struct{}, func()) { return s.watch.add() }

// Close waits for the backup and closes the file.
func (s *Store) Close() error {
	s.backup.close()
	return s.closeDB()
}

func (s *Store) closeDB() error {
	if s.db == nil {
		return nil
	}
	return guarded(s.db.Close)
}

package topology

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// guarded turns a panic or a memory fault into an error: bbolt panics while
// reading damaged pages, and a truncated file faults under its memory map.
func guarded(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	return fn()
}

func randomID() (string, error) {
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", fmt.Errorf("random identifier: %w", err)
	}
	return hex.EncodeToString(raw[:]), nil
}

// watchers are the channels of Changed.
type watchers struct {
	mu   sync.Mutex
	list map[chan struct{}]bool
}

func (w *watchers) add() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list == nil {
		w.list = map[chan struct{}]bool{}
	}
	w.list[ch] = true
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.list, ch)
	}
}

func (w *watchers) notify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.list {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// BackupPath is where the verified copy of a state file is kept.
func BackupPath(path string) string { return path + ".backup" }

// backups writes verified copies of the state file after changes of topology,
// outside of Apply, because a failover must not wait for one.
type backups struct {
	wake chan struct{}
	done chan struct{}
	mu   sync.Mutex
	last error
}

func (b *backups) init(s *Store) {
	b.wake, b.done = make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(b.done)
		for range b.wake {
			err := guarded(s.writeBackup)
			b.mu.Lock()
			b.last = err
			b.mu.Unlock()
		}
	}()
}

func (b *backups) due() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *backups) close() {
	close(b.wake)
	<-b.done
}

// checkSize refuses a file that is shorter than its own count of pages: it was
// cut, even if what is left can be read by chance.
func checkSize(tx *bolt.Tx, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("it is cut: %d of at least %d bytes are there: %w", info.Size(), tx.Size(), ErrDamaged)
	}
	return nil
}

// BackupError is why the last backup failed, nil if it did not.
func (s *Store) BackupError() error {
	s.backup.mu.Lock()
	defer s.backup.mu.Unlock()
	return s.backup.last
}

// writeBackup copies the state file, reads the copy back as a whole, and only
// then lets it take the place of the previous copy.
func (s *Store) writeBackup() error {
	target, tmp := BackupPath(s.path), BackupPath(s.path)+".tmp"
	defer os.Remove(tmp)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err := s.db.View(func(tx *bolt.Tx) error { return tx.CopyFile(tmp, 0o600) })
	if err != nil {
		return fmt.Errorf("copy state to %s: %w", tmp, err)
	}
	if err := s.verifyCopy(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, target); err != nil {
		return fmt.Errorf("state backup: %w", err)
	}
	return nil
}

func (s *Store) verifyCopy(path string) error {
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return fmt.Errorf("verify %s: %w", path, err)
	}
	check := &Store{path: path, keys: s.keys, db: db}
	if err := check.load(); err != nil {
		db.Close()
		return fmt.Errorf("verify %s: %w", path, err)
	}
	if err := db.Sync(); err != nil {
		db.Close()
		return fmt.Errorf("verify %s: %w", path, err)
	}
	return db.Close()
}

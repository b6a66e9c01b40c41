package topology

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/google/renameio/v2"
	bolt "go.etcd.io/bbolt"
)

// keyring seals passwords with AES-256-GCM.
type keyring struct{ aead cipher.AEAD }

const keySize = 32

// errKey is wrapped by errors about the key file.
var errKey = errors.New("the key file cannot be used")

// loadKey reads the key file, or makes one if it may.
func loadKey(path string, mayMake bool) (*keyring, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && mayMake {
		raw = make([]byte, keySize)
		if _, err := rand.Read(raw); err != nil {
			return nil, fmt.Errorf("key file %s: %w", path, err)
		}
		err = renameio.WriteFile(path, raw, 0o600, renameio.WithStaticPermissions(0o600))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s, which seals the passwords in the state file: %w", errKey, path, err)
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s has mode %04o and others must not read it: chmod 600 it", errKey, path, info.Mode().Perm())
	}
	if len(raw) != keySize {
		return nil, fmt.Errorf("key file %s has %d bytes, want %d: %w", path, len(raw), keySize, ErrDamaged)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	return &keyring{aead: aead}, nil
}

// seal encrypts plain; the label is bound to it, so that a sealed value cannot
// be moved to another cluster.
func (k *keyring) seal(plain []byte, label string) ([]byte, error) {
	nonce := make([]byte, k.aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return k.aead.Seal(nonce, nonce, plain, []byte(label)), nil
}

func (k *keyring) open(sealed []byte, label string) ([]byte, error) {
	n := k.aead.NonceSize()
	if len(sealed) < n {
		return nil, fmt.Errorf("sealed value is too short: %w", ErrDamaged)
	}
	plain, err := k.aead.Open(nil, sealed[:n], sealed[n:], []byte(label))
	if err != nil {
		return nil, fmt.Errorf("passwords cannot be opened with this key file: %w", ErrDamaged)
	}
	return plain, nil
}

// PutAccounts records a cluster's accounts, sealed. It is on disk when it
// returns. Accounts are recorded before they are made on a server, so that a
// crash in between leaves no account whose password nobody knows.
func (s *Store) PutAccounts(cluster string, accounts Accounts) error {
	plain, err := json.Marshal(accounts)
	if err != nil {
		return fmt.Errorf("accounts of %s: %w", cluster, err)
	}
	sealed, err := s.keys.seal(plain, cluster)
	if err != nil {
		return fmt.Errorf("accounts of %s: %w", cluster, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.update(func(tx *bolt.Tx) error { return tx.Bucket(bucketAccounts).Put([]byte(cluster), sealed) })
	if err != nil {
		return err
	}
	next := maps.Clone(*s.accounts.Load())
	next[cluster] = accounts.Clone()
	s.accounts.Store(&next)
	s.backup.due()
	return nil
}

// DropAccounts forgets a cluster's accounts.
func (s *Store) DropAccounts(cluster string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.update(func(tx *bolt.Tx) error { return tx.Bucket(bucketAccounts).Delete([]byte(cluster)) })
	if err != nil {
		return err
	}
	next := maps.Clone(*s.accounts.Load())
	delete(next, cluster)
	s.accounts.Store(&next)
	return nil
}

// Accounts gives a copy of a cluster's accounts, empty if there are none.
func (s *Store) Accounts(cluster string) Accounts {
	return (*s.accounts.Load())[cluster].Clone()
}

func (s *Store) readAccounts(tx *bolt.Tx, into map[string]Accounts) error {
	b := tx.Bucket(bucketAccounts)
	if b == nil {
		return fmt.Errorf("no accounts bucket: %w", ErrDamaged)
	}
	return b.ForEach(func(k, v []byte) error {
		plain, err := s.keys.open(v, string(k))
		if err != nil {
			return fmt.Errorf("accounts of cluster %q: %w", k, err)
		}
		var a Accounts
		if err := json.Unmarshal(plain, &a); err != nil {
			return fmt.Errorf("accounts of cluster %q: %w: %w", k, ErrDamaged, err)
		}
		into[string(k)] = a
		return nil
	})
}

// Pending gives what an interrupted verb had saved about a server before an
// effect, nil if nothing is pending.
func (s *Store) Pending(cluster, server string) ([]byte, error) {
	key, plain := pendingKey(cluster, server), []byte(nil)
	err := guarded(func() error {
		return s.db.View(func(tx *bolt.Tx) (err error) {
			if sealed := tx.Bucket(bucketPending).Get(key); sealed != nil {
				plain, err = s.keys.open(sealed, string(key))
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("pending work on %s: %w", server, err)
	}
	return plain, nil
}

// SavePending keeps, sealed, what a verb must find again after a crash; nil
// forgets it. It is on disk when it returns.
func (s *Store) SavePending(cluster, server string, plain []byte) error {
	key := pendingKey(cluster, server)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketPending)
		if plain == nil {
			return b.Delete(key)
		}
		sealed, err := s.keys.seal(plain, string(key))
		if err != nil {
			return err
		}
		return b.Put(key, sealed)
	})
}

func pendingKey(cluster, server string) []byte { return []byte(cluster + "/" + server) }

package topology

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	bolt "go.etcd.io/bbolt"
)

// keptOperations is how many operations of a cluster the history keeps.
const keptOperations = 1000

// NewOperation gives an operation its ID, which grows within the cluster, and
// records it.
func (s *Store) NewOperation(op Operation) (*Operation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := op.Clone()
	err := s.update(func(tx *bolt.Tx) error {
		b, err := tx.Bucket(bucketOperations).CreateBucketIfNotExists([]byte(op.Cluster))
		if err != nil {
			return err
		}
		seq, err := b.NextSequence()
		if err != nil {
			return err
		}
		out.ID = strconv.FormatUint(seq, 10)
		if seq > keptOperations {
			if err := b.Delete(operationKey(seq - keptOperations)); err != nil {
				return err
			}
		}
		return putOperation(b, seq, out)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SaveOperation records the present state of an operation.
func (s *Store) SaveOperation(op *Operation) error {
	seq, err := strconv.ParseUint(op.ID, 10, 64)
	if err != nil {
		return fmt.Errorf("operation id %q: %w", op.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.update(func(tx *bolt.Tx) error {
		b, err := tx.Bucket(bucketOperations).CreateBucketIfNotExists([]byte(op.Cluster))
		if err != nil {
			return err
		}
		return putOperation(b, seq, op)
	})
}

// Operations lists a cluster's operations, newest first, at most limit (0: all).
func (s *Store) Operations(cluster string, limit int) ([]Operation, error) {
	var out []Operation
	err := guarded(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			b := tx.Bucket(bucketOperations).Bucket([]byte(cluster))
			if b == nil {
				return nil
			}
			c := b.Cursor()
			for k, v := c.Last(); k != nil && (limit == 0 || len(out) < limit); k, v = c.Prev() {
				var op Operation
				if err := json.Unmarshal(v, &op); err != nil {
					return fmt.Errorf("operation %x: %w", k, err)
				}
				out = append(out, op)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", cluster, err)
	}
	return out, nil
}

func checkOperations(tx *bolt.Tx) error {
	b := tx.Bucket(bucketOperations)
	if b == nil {
		return fmt.Errorf("no operations bucket: %w", ErrDamaged)
	}
	return b.ForEachBucket(func(name []byte) error {
		return b.Bucket(name).ForEach(func(k, v []byte) error {
			var op Operation
			if err := json.Unmarshal(v, &op); err != nil {
				return fmt.Errorf("operation of cluster %q: %w: %w", name, ErrDamaged, err)
			}
			return nil
		})
	})
}

func operationKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

func putOperation(b *bolt.Bucket, seq uint64, op *Operation) error {
	raw, err := json.Marshal(op)
	if err != nil {
		return err
	}
	return b.Put(operationKey(seq), raw)
}

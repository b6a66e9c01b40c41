package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
)

// ErrantRequest asks to save what a former master has and the cluster has not.
type ErrantRequest struct {
	Cluster, Server string
	// From is the former master.
	From Endpoint
	// Fork is the last transaction that it shares with the cluster, and Has what
	// the present master holds.
	Fork gtid.GTID
	Has  gtid.State
	// DataDir is repld's own; Now names the folder.
	DataDir string
	Now     time.Time
}

// ErrantIndex is what was saved, and the content of index.json beside it.
type ErrantIndex struct {
	Cluster string    `json:"cluster"`
	Server  string    `json:"server"`
	SavedAt time.Time `json:"saved_at"`
	Fork    gtid.GTID `json:"fork"`
	// Files are the server's own binary log files, whole, from the one that holds
	// the fork on; SQL is the readable form of what follows the fork.
	Files []string `json:"files"`
	SQL   string   `json:"sql,omitempty"`
	// Restarts are the server's starts behind the fork, in order.
	Restarts     []ServerStart `json:"restarts"`
	Transactions []ErrantTx    `json:"transactions"`
	// Incomplete says why transactions may be missing from the list: the fork is no
	// longer in the server's binary log.
	Incomplete string `json:"incomplete,omitempty"`
	// Dir is the folder that holds all this.
	Dir string `json:"-"`
}

const errantIndexFile = "index.json"

// GTIDs lists the extra transactions.
func (x ErrantIndex) GTIDs() []gtid.GTID {
	out := make([]gtid.GTID, len(x.Transactions))
	for i, tx := range x.Transactions {
		out[i] = tx.GTID
	}
	return out
}

// SaveErrant copies the binary log of a former master from the fork on into
// DATA_DIR/errant/CLUSTER/SERVER/TIME, together with a readable form and an
// index, and returns the index. The server is only read, by a client that
// acknowledges nothing. The folder appears under its name only once it is
// complete and on disk: whoever sees it may destroy the original. Without any
// extra transaction nothing is kept and Dir is empty.
func SaveErrant(ctx context.Context, r ErrantRequest) (ErrantIndex, error) {
	x := ErrantIndex{Cluster: r.Cluster, Server: r.Server, SavedAt: r.Now.UTC(), Fork: r.Fork}
	parent := filepath.Join(r.DataDir, "errant", r.Cluster, r.Server)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return x, errantFault(r, err)
	}
	dir, err := os.MkdirTemp(parent, ".saving-")
	if err != nil {
		return x, errantFault(r, err)
	}
	defer os.RemoveAll(dir)
	if err := fillErrant(ctx, r, &x, dir); err != nil {
		return x, errantFault(r, err)
	}
	if len(x.Transactions) == 0 {
		return x, nil
	}
	if err := sealErrant(&x, dir); err != nil {
		return x, errantFault(r, err)
	}
	// Nanoseconds: two saves never share a name.
	x.Dir = filepath.Join(parent, r.Now.UTC().Format("20060102T150405.000000000Z"))
	if err := errors.Join(os.Rename(dir, x.Dir), syncDir(parent)); err != nil {
		return x, errantFault(r, err)
	}
	return x, nil
}

func fillErrant(ctx context.Context, r ErrantRequest, x *ErrantIndex, dir string) error {
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := mysql.Dial(dial, r.From.Target)
	if err != nil {
		return err
	}
	defer conn.Close()
	files, inFirst, err := mysql.FilesFrom(ctx, conn, r.Fork)
	if err != nil {
		return err
	}
	if !inFirst {
		x.Incomplete = fmt.Sprintf("the transaction %s, the last one in common, is no longer in the server's binary log", r.Fork)
	}
	if err := mysql.FetchBinlogs(ctx, r.From.login(), files, dir); err != nil {
		return err
	}
	scan := newErrantScan(r.Fork, r.Has, inFirst)
	for _, name := range files {
		if err := scanFile(scan, dir, name); err != nil {
			return err
		}
	}
	if !scan.past {
		return fmt.Errorf("the transaction %s, said to be the last one in common, is not in the server's binary log %v", r.Fork, files)
	}
	x.Files, x.Restarts, x.Transactions = files, scan.restarts, scan.result()
	if len(x.Transactions) == 0 {
		return nil
	}
	first := x.Transactions[0]
	var rest []string
	for _, name := range files[slices.Index(files, first.File):] {
		rest = append(rest, filepath.Join(dir, name))
	}
	x.SQL = "errant.sql"
	return mysql.ReadableBinlog(ctx, rest, first.Pos, filepath.Join(dir, x.SQL))
}

func scanFile(scan *errantScan, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	return scan.file(name, f)
}

// sealErrant makes all files durable and writes the index last.
func sealErrant(x *ErrantIndex, dir string) error {
	for _, name := range x.Files {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(dir, errantIndexFile), append(text, '\n'), 0o600); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// LoadErrant reads the index of a saved folder.
func LoadErrant(dir string) (ErrantIndex, error) {
	var x ErrantIndex
	text, err := os.ReadFile(filepath.Join(dir, errantIndexFile))
	if err != nil {
		return x, fmt.Errorf("read saved transactions: %w", err)
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return x, fmt.Errorf("read saved transactions in %s: %w", dir, err)
	}
	x.Dir = dir
	return x, nil
}

func errantFault(r ErrantRequest, err error) error {
	return &fault.Error{
		Kind: fault.Failed, Code: "errant_not_saved", Server: r.Server, Errno: mysql.Errno(err),
		What: "the extra transactions of the server could not be saved", Cause: fault.Brief(err),
		State: "the server is as it was, and keeps them", Do: "remove the cause; repld tries again", Err: err,
	}
}

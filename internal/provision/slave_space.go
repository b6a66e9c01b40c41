package provision

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what waits for a server during init slave.
const (
	dialTimeout = 10 * time.Second
	lookTimeout = 5 * time.Minute
	// tryTimeout bounds a trial of replication: it tries again each second.
	tryTimeout = 20 * time.Second
	// proveTimeout bounds how long a slave that has caught up may take to show a
	// change; catchUpStall how long one that has not may make no progress.
	proveTimeout = 30 * time.Second
	catchUpStall = 60 * time.Second
)

// freeSpace is what an unprivileged process may still write below a folder.
func freeSpace(dir string) (uint64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return st.Bavail * uint64(st.Bsize), true
}

// missingFrom are the elements of list that known lacks.
func missingFrom(list, known []string) []string {
	var out []string
	for _, v := range list {
		if !slices.Contains(known, v) {
			out = append(out, v)
		}
	}
	return out
}

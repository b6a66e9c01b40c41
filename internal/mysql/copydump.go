package mysql

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// BinlogPoint is a place in a master's binary log.
type BinlogPoint struct {
	File string
	Pos  uint64
}

// Dump is a running mariadb-dump. Read it to the end, then Close it: only a nil
// error of Close says that what was read is whole.
type Dump struct {
	// At is where the master's binary log stood at the dump's snapshot.
	At BinlogPoint

	cmd    *exec.Cmd
	out    *bufio.Reader
	head   []byte
	tail   tailBuffer
	stderr limitedBuffer
	eof    bool
	remove func()
}

// maxHead bounds what is read of a dump before its place in the binary log
// must have been named.
const maxHead = 64 << 10

// StartDump starts a consistent dump of schemas with their routines, events,
// triggers and views, without a lock that would stop writers: the snapshot and
// its place in the binary log are taken together by the server
// (binlog_snapshot_file). It returns once the place is known. Accounts are not
// part of it, see [ReadAccounts]. Cancelling ctx kills the program.
func StartDump(ctx context.Context, from ClientLogin, schemas []string) (*Dump, error) {
	if len(schemas) == 0 {
		return nil, errors.New("dump: no schema named")
	}
	from, remove, err := from.withFile()
	if err != nil {
		return nil, err
	}
	d, err := startDump(ctx, from, schemas)
	if err != nil {
		remove()
		return nil, err
	}
	d.remove = remove
	if err := d.readHead(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func startDump(ctx context.Context, from ClientLogin, schemas []string) (*Dump, error) {
	options, err := from.optionFile("mariadb-dump",
		"single-transaction", "quick", "master-data=2", "gtid",
		"routines", "events", "triggers", "hex-blob", "tz-utc",
		"default-character-set=utf8mb4",
		// A row may be as large as a server accepts; statements of about a megabyte
		// keep the number of commits on the other side low.
		"max-allowed-packet=1G", "net-buffer-length=1046528")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "mariadb-dump", append([]string{"--databases", "--"}, schemas...)...)
	d := &Dump{cmd: cmd}
	cmd.Stderr = &d.stderr
	childOf(cmd)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	started, err := giveOptions(cmd, options)
	if err != nil {
		return nil, err
	}
	err = cmd.Start()
	started()
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	d.out = bufio.NewReaderSize(pipe, 256<<10)
	return d, nil
}

// childOf makes a program end in order when its context does, and makes sure
// that it never outlives its parent's wait.
func childOf(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.WaitDelay = 5 * time.Second
}

var placeLine = regexp.MustCompile(`^-- CHANGE MASTER TO MASTER_LOG_FILE='([^']+)', MASTER_LOG_POS=(\d+);`)

// readHead reads up to the comment that names the place in the binary log and
// keeps what it has read for Read.
func (d *Dump) readHead() error {
	for len(d.head) < maxHead {
		line, err := d.out.ReadBytes('\n')
		d.head = append(d.head, line...)
		if m := placeLine.FindSubmatch(line); m != nil {
			pos, err := strconv.ParseUint(string(m[2]), 10, 64)
			if err != nil {
				return fmt.Errorf("dump: place in the binary log: %w", err)
			}
			d.At = BinlogPoint{File: string(m[1]), Pos: pos}
			d.tail.Write(d.head)
			return nil
		}
		if err != nil {
			return fmt.Errorf("dump: it ended before it named its place in the binary log: %w", err)
		}
	}
	return errors.New("dump: it does not name its place in the binary log; is the binary log on?")
}

// Read gives the dump's text.
func (d *Dump) Read(p []byte) (int, error) {
	if len(d.head) > 0 {
		n := copy(p, d.head)
		d.head = d.head[n:]
		return n, nil
	}
	n, err := d.out.Read(p)
	d.tail.Write(p[:n])
	if errors.Is(err, io.EOF) {
		d.eof = true
	}
	return n, err
}

// Ended tells whether the dump ended by itself: all it had to give was read.
func (d *Dump) Ended() bool { return d.eof }

// Close ends the dump and says whether it was whole: read to its end, closed by
// the dump's own last line, and the program content with its work. A dump that was
// not read to its end is killed.
func (d *Dump) Close() error {
	if !d.eof {
		_ = d.cmd.Process.Kill()
	}
	err := d.cmd.Wait()
	d.remove()
	switch {
	case err != nil:
		return &ProgramError{Program: "mariadb-dump", Message: d.stderr.String(), Err: err}
	case !d.eof || !bytes.Contains(d.tail.last, []byte("-- Dump completed")):
		return &ProgramError{Program: "mariadb-dump", Message: d.stderr.String(), Err: errors.New("the dump has no end")}
	}
	return nil
}

// ProgramError is the failure of one of MariaDB's own programs.
type ProgramError struct {
	Program string
	// Message is the end of what the program wrote to its standard error.
	Message string
	Err     error
}

// Error names the program and its own words.
func (e *ProgramError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%s: %v", e.Program, e.Err)
	}
	return fmt.Sprintf("%s: %s (%v)", e.Program, strings.TrimSpace(e.Message), e.Err)
}

// Unwrap gives the error below.
func (e *ProgramError) Unwrap() error { return e.Err }

var programErrno = regexp.MustCompile(`(?i)(?:error:?|errno:?|got error:?)\s*(\d{4})\b`)

// Errno is the server's error number in the program's words, 0 if there is none.
func (e *ProgramError) Errno() uint16 {
	m := programErrno.FindStringSubmatch(e.Message)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// tailBuffer keeps the end of what was written.
type tailBuffer struct{ last []byte }

const tailSize = 512

func (t *tailBuffer) Write(p []byte) {
	if len(p) > tailSize {
		p = p[len(p)-tailSize:]
	}
	t.last = append(t.last, p...)
	if len(t.last) > tailSize {
		t.last = t.last[len(t.last)-tailSize:]
	}
}

// limitedBuffer keeps the first few kilobytes that a program wrote to its
// standard error: the first message is the cause of those that follow.
type limitedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := 4096 - l.buf.Len(); room > 0 {
		l.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (l *limitedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

package mariadb

import (
	"context"
	"time"
)

// TB is what the helpers need of testing.TB; the demo, which is no test, need
// not import the testing package for it.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// New makes a kit that ends with the test. If the test failed, the end of each
// server's log is shown.
func New(t TB) *Kit {
	t.Helper()
	k, err := NewKit("")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, s := range k.Servers() {
				t.Logf("log of server %s ends with:\n%s", s.Name, s.LogTail(40))
			}
		}
		if err := k.Close(); err != nil {
			t.Errorf("close the test kit: %v", err)
		}
	})
	return k
}

// Start starts one server, in a kit of its own, that ends with the test.
func Start(t TB, opts Options) *Server {
	t.Helper()
	return StartAll(t, opts)[0]
}

// StartAll starts several servers in parallel, in one kit that ends with the
// test.
func StartAll(t TB, opts ...Options) []*Server {
	t.Helper()
	servers, err := New(t).StartAll(context.Background(), opts...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return servers
}

// Eventually polls check until it returns nil; the test fails with its last
// error if that does not happen within timeout.
func Eventually(t TB, timeout time.Duration, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	begun := time.Now()
	if err := Wait(ctx, check); err != nil {
		t.Fatalf("not within %v (waited %v): %v", timeout, time.Since(begun).Round(time.Millisecond), err)
	}
}

// MustExec runs statements as the administrator, in a session of their own.
func (s *Server) MustExec(t TB, statements ...string) {
	t.Helper()
	if err := s.Exec(context.Background(), statements...); err != nil {
		t.Fatalf("%v", err)
	}
}

// MustValue is the first column of the query's first row; "NULL" for NULL.
func (s *Server) MustValue(t TB, query string, args ...any) string {
	t.Helper()
	v, err := s.Value(context.Background(), query, args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return v
}

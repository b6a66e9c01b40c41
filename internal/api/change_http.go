package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/repld/repld/internal/fault"
)

// Log keys of this package.
const (
	logCluster = "cluster"
	logChange  = "change"
	logError   = "err"
	logStack   = "stack"
)

const ndjson = "application/x-ndjson"

// line is one line of an answer to a change: an event, or the one result or
// error that ends it.
type line struct {
	*Event
	Result *Result `json:"result,omitempty"`
	Error  *Error  `json:"error,omitempty"`
}

// request is a change's body. All of them carry a [Consent].
type request interface{ dryRun() bool }

func (c Consent) dryRun() bool { return c.DryRun }

// change makes the handler of one verb.
func change[R request](s *Server, do func(context.Context, string, R, Progress) (*Result, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		cluster, err := clusterOf(r)
		if err != nil {
			return err
		}
		var body R
		if err := readRequest(r, &body); err != nil {
			return err
		}
		// A change outlives its client (see the package's comment), a dry run not.
		ctx := s.changes
		if body.dryRun() {
			ctx = r.Context()
		}
		s.stream(w, r, func(p Progress) (*Result, error) { return do(ctx, cluster, body, p) })
		return nil
	}
}

// stream runs fn in a goroutine of its own and passes on what it reports, until
// it is done: a client that went away or reads slowly never holds fn up.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, fn func(Progress) (*Result, error)) {
	lines := make(chan line)
	go func() {
		defer close(lines)
		result, err := s.guarded(r, func() (*Result, error) {
			return fn(func(e Event) { lines <- line{Event: &e} })
		})
		if err != nil {
			e := NewError(err)
			lines <- line{Error: &e}
			return
		}
		lines <- line{Result: result}
	}()
	w.Header().Set("Content-Type", ndjson)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	// The server's read deadline is for the request, which has arrived: without
	// this it would end the context of a long dry run. The write deadline must
	// not outlive the answer on a connection that is used again.
	_ = control.SetReadDeadline(time.Time{})
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	gone := false
	for l := range lines {
		if gone {
			continue
		}
		// A test's recorder has no deadlines; only a real connection can block.
		if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			gone = true
			continue
		}
		if enc.Encode(l) != nil || control.Flush() != nil {
			gone = true
			s.log.Warn("client went away during a change, which goes on", logCluster, r.PathValue("cluster"), logChange, r.URL.Path)
		}
	}
}

// guarded turns a panic of a change into an error: repld guards other clusters
// too and must go on.
func (s *Server) guarded(r *http.Request, fn func() (*Result, error)) (result *Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a change failed inside repld", logCluster, r.PathValue("cluster"), logChange, r.URL.Path,
				logError, fmt.Sprint(p), logStack, string(debug.Stack()))
			result, err = nil, &fault.Error{Kind: fault.Failed, Code: "internal", What: "repld failed in " + r.URL.Path,
				Cause: "a fault in repld itself; its log has the details", State: "unknown; see replctl status", Do: "replctl status"}
		}
	}()
	result, err = fn()
	if err == nil && result == nil {
		result = &Result{}
	}
	return result, err
}

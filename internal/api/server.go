package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/repld/repld/internal/fault"
)

// Limits of the server. There is no limit on how long an answer takes, since a
// change streams its progress; each write of one has its own.
const (
	maxRequest        = 1 << 20
	maxHeader         = 16 << 10
	readTimeout       = 30 * time.Second
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	writeTimeout      = 5 * time.Second

	// DefaultHistory and MaxHistory bound a list of operations.
	DefaultHistory = 100
	MaxHistory     = 10000
)

// Server answers replctl.
type Server struct {
	read    Reader
	change  Changer
	version Version
	log     *slog.Logger
	http    *http.Server
	// changes is the context of changes under way; it ends when repld stops.
	changes context.Context
	stop    context.CancelFunc
}

// NewServer makes a server; [Server.Serve] runs it. A nil Changer makes one that
// only shows: it has no routes for changes.
func NewServer(read Reader, change Changer, version Version, log *slog.Logger) *Server {
	s := &Server{read: read, change: change, version: version, log: log}
	s.changes, s.stop = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           s.Handler(),
		ReadTimeout:       readTimeout,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return s
}

// Serve answers on l until Close; it then returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the control API: %w", err)
	}
	return nil
}

// Close accepts nothing more, ends the context of the changes under way and
// waits for them and for their answers, as long as ctx allows.
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	// Shutdown waits for the handlers, and each waits for its change.
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("changes are still running: %w", err), s.http.Close())
	}
	return nil
}

// Handler is the routes by themselves.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	route := func(method, path string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
			if err := h(w, r); err != nil {
				writeError(w, httpStatus(fault.As(err).Kind), err)
			}
		})
		allow := method
		if method == http.MethodGet {
			allow = "GET, HEAD"
		}
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", allow)
			writeError(w, http.StatusMethodNotAllowed, wrongRequest("method_not_allowed",
				fmt.Sprintf("%s is not possible on %s", r.Method, r.URL.Path), "use "+method))
		})
	}
	const cluster = "/v1/clusters/{cluster}"
	route(http.MethodGet, "/v1/version", s.getVersion)
	route(http.MethodGet, cluster+"/status", s.getStatus)
	route(http.MethodGet, cluster+"/history", s.getHistory)
	route(http.MethodGet, cluster+"/history/{id}", s.getOperation)
	route(http.MethodGet, cluster+"/explain", s.getExplain)
	if s.change != nil {
		route(http.MethodPost, cluster+"/init", change(s, s.change.Init))
		route(http.MethodPost, cluster+"/adopt", change(s, s.change.Adopt))
		route(http.MethodPost, cluster+"/remove", change(s, s.change.Remove))
		route(http.MethodPost, cluster+"/failover", change(s, s.change.Failover))
		route(http.MethodPost, cluster+"/pause", change(s, s.change.Pause))
		route(http.MethodPost, cluster+"/resume", change(s, s.change.Resume))
		route(http.MethodPost, cluster+"/stop", change(s, s.change.Stop))
		route(http.MethodPost, cluster+"/start", change(s, s.change.Start))
		route(http.MethodPost, cluster+"/maintenance", change(s, s.change.Maintenance))
		route(http.MethodPost, cluster+"/restart", change(s, s.change.Restart))
		route(http.MethodPost, cluster+"/durability", change(s, s.change.Durability))
		route(http.MethodPost, cluster+"/switchover", change(s, s.change.Switchover))
		route(http.MethodPost, cluster+"/rejoin", change(s, s.change.Rejoin))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, wrongRequest("unknown_route", "there is no "+r.URL.Path, "use replctl of the same version as repld"))
	})
	return mux
}

func (s *Server) getVersion(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, s.version)
	return nil
}

func (s *Server) getStatus(w http.ResponseWriter, r *http.Request) error {
	cluster, err := clusterOf(r)
	if err != nil {
		return err
	}
	status, err := s.read.Status(r.Context(), cluster)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, status)
	return nil
}

func (s *Server) getHistory(w http.ResponseWriter, r *http.Request) error {
	cluster, err := clusterOf(r)
	if err != nil {
		return err
	}
	limit := DefaultHistory
	if text := r.URL.Query().Get("limit"); text != "" {
		limit, err = strconv.Atoi(text)
		if err != nil || limit < 1 || limit > MaxHistory {
			return wrongRequest("bad_limit", fmt.Sprintf("limit %q is not a number from 1 to %d", text, MaxHistory), "correct it")
		}
	}
	list, err := s.read.History(r.Context(), cluster, limit)
	if err != nil {
		return err
	}
	if list == nil {
		list = []Operation{}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

func (s *Server) getOperation(w http.ResponseWriter, r *http.Request) error {
	cluster, err := clusterOf(r)
	if err != nil {
		return err
	}
	op, err := s.read.Operation(r.Context(), cluster, r.PathValue("id"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, op)
	return nil
}

func clusterOf(r *http.Request) (string, error) {
	name := r.PathValue("cluster")
	return name, CheckName("cluster", name)
}

// readRequest decodes a body strictly: a field that is not understood may be
// the one that makes a change harmless.
func readRequest(r *http.Request, into any) error {
	if mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(mediaType) != "application/json" {
		return wrongRequest("bad_content_type", "a request must be application/json", "set Content-Type")
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("more than one value")
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return wrongRequest("too_large", fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit), "shorten it")
	}
	// The decoder's text can quote what was sent, which can be a password.
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return wrongRequest("bad_request", fmt.Sprintf("the request is not JSON at byte %d", syntax.Offset), "correct it")
	}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return wrongRequest("bad_request", fmt.Sprintf("field %s of the request cannot be a %s", wrongType.Field, kindOf(wrongType.Value)), "correct it")
	}
	if field, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		return wrongRequest("bad_request", "the request has an unknown field "+field, "use replctl of the same version as repld")
	}
	return wrongRequest("bad_request", "the request cannot be read", "send one JSON object")
}

// kindOf keeps only the kind of "number 123".
func kindOf(value string) string {
	kind, _, _ := strings.Cut(value, " ")
	return kind
}

func wrongRequest(code, what, do string) error {
	return &fault.Error{Kind: fault.Usage, Code: code, What: what, Cause: "the control API does not know such a request",
		State: "nothing was changed", Do: do}
}

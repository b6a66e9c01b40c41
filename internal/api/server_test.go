package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/repld/repld/internal/fault"
)

// service is a repld for the tests of the wire: each verb is a function.
type service struct {
	Reader
	Changer
	status func(cluster string) (*Status, error)
	remove func(ctx context.Context, r RemoveRequest, p Progress) (*Result, error)
	init   func(ctx context.Context, r InitRequest, p Progress) (*Result, error)
}

func (s service) Status(_ context.Context, cluster string) (*Status, error) { return s.status(cluster) }

func (s service) History(context.Context, string, int) ([]Operation, error) { return nil, nil }

func (s service) Operation(_ context.Context, _, id string) (*Operation, error) {
	return nil, UnknownOperation(id)
}

func (s service) Remove(ctx context.Context, _ string, r RemoveRequest, p Progress) (*Result, error) {
	return s.remove(ctx, r, p)
}

func (s service) Init(ctx context.Context, _ string, r InitRequest, p Progress) (*Result, error) {
	return s.init(ctx, r, p)
}

// serve starts a server for svc and gives a client, the socket and the server.
// All is stopped, and no goroutine left, at the end of the test.
func serve(t *testing.T, svc service) (*Client, string, *Server) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen("unix://"+path, "")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(svc, svc, Version{Version: "1.2.3"}, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, leaks)
	})
	c, err := NewClient("unix://"+path, "main")
	if err != nil {
		t.Fatal(err)
	}
	return c, path, s
}

func TestAnswersAndFaultsArriveAsTheyWereSent(t *testing.T) {
	sent := &fault.Error{Kind: fault.Partly, Code: "config_not_writable", What: "w", Server: "db1", Errno: 1045, Cause: "c", State: "s", Do: "d", Document: "[mysqld]\n"}
	c, _, _ := serve(t, service{
		status: func(cluster string) (*Status, error) { return &Status{Cluster: cluster, Epoch: 3}, nil },
		remove: func(_ context.Context, r RemoveRequest, p Progress) (*Result, error) {
			p(Event{Step: "stop", Server: r.Name, Status: "start"})
			p(Event{Step: "stop", Server: r.Name, Status: "failed", Text: "<&>"})
			return nil, sent
		},
	})
	ctx := t.Context()
	if v, err := c.Version(ctx); err != nil || v.Version != "1.2.3" {
		t.Errorf("version %v, %v", v, err)
	}
	if s, err := c.Status(ctx); err != nil || s.Cluster != "main" || s.Epoch != 3 {
		t.Errorf("status %v, %v", s, err)
	}
	if list, err := c.History(ctx, 5); err != nil || list == nil || len(list) != 0 {
		t.Errorf("history %v, %v; want an empty list", list, err)
	}
	if _, err := c.Operation(ctx, "a/b"); fault.As(err).Code != "unknown_operation" || !strings.Contains(err.Error(), "a/b") {
		t.Errorf("operation: %v", err)
	}
	var events []Event
	_, err := c.Remove(ctx, RemoveRequest{Name: "db1"}, func(e Event) { events = append(events, e) })
	if diff := cmp.Diff(sent, err); diff != "" {
		t.Errorf("fault (-sent +got):\n%s", diff)
	}
	want := []Event{{"stop", "db1", "start", ""}, {"stop", "db1", "failed", "<&>"}}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestChangeGoesOnWithoutItsClientAndADryRunDoesNot(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		started, ended, finish := make(chan struct{}), make(chan error, 1), make(chan struct{})
		c, _, _ := serve(t, service{remove: func(ctx context.Context, _ RemoveRequest, p Progress) (*Result, error) {
			close(started)
			for {
				select {
				case <-ctx.Done():
					ended <- ctx.Err()
					return nil, ctx.Err()
				case <-finish:
					ended <- nil
					return &Result{Changed: true}, nil
				case <-time.After(time.Millisecond):
					p(Event{Step: "work", Status: "progress"})
				}
			}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() {
			_, err := c.Remove(ctx, RemoveRequest{Consent: Consent{DryRun: dryRun}}, nil)
			answered <- err
		}()
		<-started
		cancel()
		err := <-answered
		if f := fault.As(err); f.Kind != fault.Timeout || strings.Contains(f.State, "goes on") == dryRun {
			t.Errorf("dry run %v: the client says %v", dryRun, err)
		}
		if dryRun {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the dry run ended with %v", err)
			}
			continue
		}
		select {
		case err := <-ended:
			t.Errorf("the change ended with its client: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		close(finish)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestCloseEndsAChangeAndItsClientLearnsIt(t *testing.T) {
	started := make(chan struct{})
	c, _, s := serve(t, service{remove: func(ctx context.Context, _ RemoveRequest, _ Progress) (*Result, error) {
		close(started)
		<-ctx.Done()
		return nil, &fault.Error{Kind: fault.Failed, Code: "stopping", What: "repld is stopping"}
	}})
	answered := make(chan error, 1)
	go func() {
		_, err := c.Remove(t.Context(), RemoveRequest{}, nil)
		answered <- err
	}()
	<-started
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-answered; fault.As(err).Code != "stopping" {
		t.Errorf("the client got %v", err)
	}
}

func TestPanicInAChangeIsAnErrorAndRepldLives(t *testing.T) {
	c, _, _ := serve(t, service{
		status: func(string) (*Status, error) { return &Status{}, nil },
		remove: func(context.Context, RemoveRequest, Progress) (*Result, error) { panic("secret") },
	})
	_, err := c.Remove(t.Context(), RemoveRequest{}, nil)
	if fault.As(err).Code != "internal" || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWrongRequestsAreRefusedAsJSON(t *testing.T) {
	_, path, _ := serve(t, service{init: func(context.Context, InitRequest, Progress) (*Result, error) {
		t.Error("the service was called")
		return nil, nil
	}})
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	const initPath = "/v1/clusters/main/init"
	for name, c := range map[string]struct {
		method, path, contentType, body string
		status                          int
		code                            string
	}{
		"unknown route":    {"GET", "/v2/x", "", "", 404, "unknown_route"},
		"change by GET":    {"GET", initPath, "", "", 405, "method_not_allowed"},
		"read by POST":     {"POST", "/v1/clusters/main/status", "application/json", "{}", 405, "method_not_allowed"},
		"change by DELETE": {"DELETE", initPath, "", "", 405, "method_not_allowed"},
		"bad cluster":      {"GET", "/v1/clusters/%2e%2ex%20/status", "", "", 400, "bad_name"},
		"bad limit":        {"GET", "/v1/clusters/main/history?limit=-1", "", "", 400, "bad_limit"},
		"form":             {"POST", initPath, "application/x-www-form-urlencoded", "a=b", 400, "bad_content_type"},
		"not JSON":         {"POST", initPath, "application/json", `{"admin":{"password":"hunter2"`, 400, "bad_request"},
		"unknown field":    {"POST", initPath, "application/json", `{"dry_rum":true}`, 400, "bad_request"},
		"wrong type":       {"POST", initPath, "application/json", `{"admin":{"password":77112233}}`, 400, "bad_request"},
		"two values":       {"POST", initPath, "application/json", `{}{}`, 400, "bad_request"},
		"too large":        {"POST", initPath, "application/json", `{"name":"` + strings.Repeat("x", maxRequest) + `"}`, 400, "too_large"},
	} {
		req, err := http.NewRequest(c.method, "http://repld"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.contentType)
		res, err := hc.Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.status || !strings.Contains(string(body), `{"error":{"code":"`+c.code+`"`) {
			t.Errorf("%s: status %d, %s; want %d and code %s", name, res.StatusCode, body, c.status, c.code)
		}
		if strings.Contains(string(body), "hunter2") || strings.Contains(string(body), "77112233") {
			t.Errorf("%s: the answer repeats a password: %s", name, body)
		}
	}
}

func TestClientSaysWhyThereIsNoRepld(t *testing.T) {
	dir := t.TempDir()
	c, err := NewClient("unix://"+dir+"/none", "main")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); fault.As(err).Kind != fault.Unreachable || !strings.Contains(err.Error(), "not running") {
		t.Errorf("no socket: %v", err)
	}
	for _, bad := range []string{"https://h:1", "repld.sock", "unix://relative", ""} {
		if _, err := NewClient(bad, "main"); fault.As(err).Kind != fault.Usage {
			t.Errorf("endpoint %q: %v", bad, err)
		}
	}
	// Something that is not repld.
	l, err := net.Listen("unix", dir+"/other")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-x\r\n")
			conn.Close()
		}
	}()
	c, err = NewClient("unix://"+dir+"/other", "main")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); fault.As(err).Kind != fault.Unreachable {
		t.Errorf("not repld: %v", err)
	}
	if _, err := c.Remove(t.Context(), RemoveRequest{}, nil); fault.As(err).Kind != fault.Unreachable {
		t.Errorf("not repld, change: %v", err)
	}
	// A repld that dies with the request in hand may have begun: nobody can say
	// that nothing was asked of it.
	dies, err := net.Listen("unix", dir+"/dies")
	if err != nil {
		t.Fatal(err)
	}
	defer dies.Close()
	go func() {
		for {
			conn, err := dies.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			conn.Close()
		}
	}()
	if c, err = NewClient("unix://"+dir+"/dies", "main"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Switchover(t.Context(), SwitchoverRequest{}, nil); fault.As(err).Code != "answer_lost" || strings.Contains(fault.As(err).State, "nothing") {
		t.Errorf("repld died meanwhile: %+v", fault.As(err))
	}
}

func TestInitRequestsThatCannotBeRightAreRefused(t *testing.T) {
	good := InitRequest{Name: "db1", Address: "h:1"}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for code, spoil := range map[string]func(*InitRequest){
		"bad_name":         func(r *InitRequest) { r.Name = "../x" },
		"bad_address":      func(r *InitRequest) { r.Address = " " },
		"statement_format": func(r *InitRequest) { r.BinlogFormat = "statement" },
		"bad_flag":         func(r *InitRequest) { r.Restart = "later" },
		"bad_ssl_files":    func(r *InitRequest) { r.SSLCA = "/ca" },
		"bad_delay":        func(r *InitRequest) { r.Slave = &SlaveOptions{DelayMS: 1500} },
		"bad_schema":       func(r *InitRequest) { r.Slave = &SlaveOptions{ReplicateDoDB: []string{""}} },
		"bad_skip_errors":  func(r *InitRequest) { r.Slave = &SlaveOptions{SkipErrors: "1062, 1032"} },
	} {
		r := good
		spoil(&r)
		if f := fault.As(r.Check()); f == nil || f.Code != code || f.Kind != fault.Usage || f.Do == "" {
			t.Errorf("%s: got %v", code, f)
		}
	}
}

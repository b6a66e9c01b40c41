package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/repld/repld/internal/fault"
)

// DefaultEndpoint is where repld listens unless configured otherwise.
const DefaultEndpoint = "unix:///run/repld/repld.sock"

// dialTimeout is how long a socket may take to accept.
const dialTimeout = 5 * time.Second

// maxAnswer bounds one JSON answer or line.
const maxAnswer = 64 << 20

// Client speaks to one repld. Its errors are *fault.Error: those of repld as
// they were sent, Unreachable if there is no repld, Timeout if ctx ended during
// a change, which then goes on in repld.
type Client struct {
	endpoint string
	cluster  string
	http     *http.Client
}

// NewClient makes a client of the repld at endpoint, unix:///PATH, for one
// cluster. It does not connect yet.
func NewClient(endpoint, cluster string) (*Client, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok || !filepath.IsAbs(path) {
		cause := "it is not unix:///path"
		if strings.HasPrefix(endpoint, "https://") || strings.HasPrefix(endpoint, "http://") {
			cause = "repld is reached by its unix socket only"
		}
		return nil, usage("bad_endpoint", fmt.Sprintf("cannot use endpoint %q", endpoint), cause, "give --endpoint unix:///path, as the key listen of repld says")
	}
	if err := CheckName("cluster", cluster); err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: dialTimeout}
			return d.DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}
	return &Client{endpoint: endpoint, cluster: cluster, http: &http.Client{Transport: transport}}, nil
}

// Version asks repld for its version.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	return get[Version](ctx, c, "/v1/version")
}

// Status asks for the state of the cluster.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return get[Status](ctx, c, c.path("status"))
}

// History asks for the newest operations, at most limit.
func (c *Client) History(ctx context.Context, limit int) ([]Operation, error) {
	list, err := get[[]Operation](ctx, c, c.path("history")+"?limit="+strconv.Itoa(limit))
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// Operation asks for one operation.
func (c *Client) Operation(ctx context.Context, id string) (*Operation, error) {
	return get[Operation](ctx, c, c.path("history", id))
}

// Init runs `init master` or `init slave`, or plans it. p gets the progress.
func (c *Client) Init(ctx context.Context, r InitRequest, p Progress) (*Result, error) {
	return post(ctx, c, "init", r, p)
}

// Adopt runs or plans `adopt`.
func (c *Client) Adopt(ctx context.Context, r AdoptRequest, p Progress) (*Result, error) {
	return post(ctx, c, "adopt", r, p)
}

// Remove runs or plans `remove`.
func (c *Client) Remove(ctx context.Context, r RemoveRequest, p Progress) (*Result, error) {
	return post(ctx, c, "remove", r, p)
}

// Pause runs or plans `pause`.
func (c *Client) Pause(ctx context.Context, r PauseRequest, p Progress) (*Result, error) {
	return post(ctx, c, "pause", r, p)
}

// Resume runs or plans `resume`.
func (c *Client) Resume(ctx context.Context, r ResumeRequest, p Progress) (*Result, error) {
	return post(ctx, c, "resume", r, p)
}

// Stop runs or plans `stop`.
func (c *Client) Stop(ctx context.Context, r StopRequest, p Progress) (*Result, error) {
	return post(ctx, c, "stop", r, p)
}

// Start runs or plans `start`.
func (c *Client) Start(ctx context.Context, r StartRequest, p Progress) (*Result, error) {
	return post(ctx, c, "start", r, p)
}

// Maintenance runs or plans `maintenance`.
func (c *Client) Maintenance(ctx context.Context, r MaintenanceRequest, p Progress) (*Result, error) {
	return post(ctx, c, "maintenance", r, p)
}

// Restart runs or plans `restart`.
func (c *Client) Restart(ctx context.Context, r RestartRequest, p Progress) (*Result, error) {
	return post(ctx, c, "restart", r, p)
}

// Durability runs or plans `durability set`.
func (c *Client) Durability(ctx context.Context, r DurabilityRequest, p Progress) (*Result, error) {
	return post(ctx, c, "durability", r, p)
}

// Switchover runs or plans `switchover`.
func (c *Client) Switchover(ctx context.Context, r SwitchoverRequest, p Progress) (*Result, error) {
	return post(ctx, c, "switchover", r, p)
}

// Failover runs or plans `failover`.
func (c *Client) Failover(ctx context.Context, r FailoverRequest, p Progress) (*Result, error) {
	return post(ctx, c, "failover", r, p)
}

// Rejoin runs or plans `rejoin`.
func (c *Client) Rejoin(ctx context.Context, r RejoinRequest, p Progress) (*Result, error) {
	return post(ctx, c, "rejoin", r, p)
}

func (c *Client) path(parts ...string) string {
	p := "/v1/clusters/" + url.PathEscape(c.cluster)
	for _, part := range parts {
		p += "/" + url.PathEscape(part)
	}
	return p
}

func get[T any](ctx context.Context, c *Client, path string) (*T, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://repld"+path, nil)
	if err != nil {
		return nil, c.noAnswer(ctx, err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.noAnswer(ctx, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, c.noAnswer(ctx, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, refusal(c, res.StatusCode, body)
	}
	var out T
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, c.notRepld(err)
	}
	return &out, nil
}

func post[R request](ctx context.Context, c *Client, verb string, r R, p Progress) (*Result, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://repld"+c.path(verb), bytes.NewReader(body))
	if err != nil {
		return nil, c.noAnswer(ctx, err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		// Whether repld got the request before the context ended cannot be told.
		if ctx.Err() != nil {
			return nil, interrupted(ctx, r.dryRun())
		}
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return nil, c.noAnswer(ctx, err)
		}
		return nil, c.brokeOff(err, r.dryRun())
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		if err != nil {
			return nil, c.noAnswer(ctx, err)
		}
		return nil, refusal(c, res.StatusCode, text)
	}
	result, err := readLines(res.Body, p)
	switch {
	case err == nil:
		return result, nil
	case ctx.Err() != nil:
		return nil, interrupted(ctx, r.dryRun())
	case errors.Is(err, errNoResult):
		return nil, c.brokeOff(err, r.dryRun())
	}
	return nil, err
}

// errNoResult is wrapped if an answer ended before its result.
var errNoResult = errors.New("the answer ended early")

func readLines(body io.Reader, p Progress) (*Result, error) {
	in := bufio.NewScanner(body)
	in.Buffer(make([]byte, 64<<10), maxAnswer)
	for in.Scan() {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoResult, err)
		}
		switch {
		case l.Error != nil:
			return nil, l.Error.Fault()
		case l.Result != nil:
			return l.Result, nil
		case l.Event != nil && p != nil:
			p(*l.Event)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoResult, err)
	}
	return nil, errNoResult
}

// refusal is an answer that is an error.
func refusal(c *Client, status int, body []byte) error {
	var e ErrorBody
	if err := json.Unmarshal(body, &e); err != nil || e.Error.Code == "" {
		return c.notRepld(fmt.Errorf("it answered with HTTP status %d", status))
	}
	return e.Error.Fault()
}

func (c *Client) notRepld(err error) error {
	return &fault.Error{Kind: fault.Unreachable, Code: "not_repld", What: "what answers at " + c.endpoint + " is not this version's repld",
		Cause: err.Error(), State: "unknown", Do: "check --endpoint; use replctl of the same version as repld", Err: err}
}

// noAnswer is for requests that reached nobody or change nothing.
func (c *Client) noAnswer(ctx context.Context, err error) error {
	f := &fault.Error{Kind: fault.Unreachable, Code: "repld_unreachable", What: "repld cannot be reached at " + c.endpoint,
		Cause: err.Error(), State: "nothing was asked of it", Do: "start repld, or check --endpoint (or REPLCTL_ENDPOINT)", Err: err}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		f.Kind, f.Code, f.Cause = fault.Timeout, "timeout", "it did not answer within --timeout"
		f.State, f.Do = "nothing was changed", "give a longer --timeout, or look at repld's log"
	case ctx.Err() != nil:
		f.Kind, f.Code, f.Cause, f.State, f.Do = fault.Failed, "interrupted", "interrupted", "nothing was changed", "run it again"
	case errors.Is(err, os.ErrNotExist):
		f.Cause = "there is no such socket: repld is not running, or listens elsewhere"
	case errors.Is(err, syscall.ECONNREFUSED):
		f.Cause = "nobody listens on the socket: repld is not running"
	case errors.Is(err, os.ErrPermission):
		f.Cause = "this user may not use the socket"
		f.Do = "run replctl as root, or join the group of repld's key socket_group"
	}
	return f
}

// brokeOff is for a change whose answer ended before its result.
func (c *Client) brokeOff(err error, dryRun bool) error {
	f := &fault.Error{Kind: fault.Unreachable, Code: "answer_lost", What: "repld at " + c.endpoint + " went away before the result",
		Cause: err.Error(), State: "unknown: what had begun is in the history once repld runs again", Do: "replctl history; then run the same command again", Err: err}
	if dryRun {
		f.State, f.Do = "nothing was changed", "run it again"
	}
	return f
}

func interrupted(ctx context.Context, dryRun bool) error {
	f := &fault.Error{Kind: fault.Timeout, Code: "timeout", What: "no result within --timeout", Cause: "the operation takes longer",
		State: "the operation goes on in repld", Do: "replctl history", Err: ctx.Err()}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		f.Code, f.What, f.Cause = "interrupted", "interrupted before the result", "replctl was told to stop"
	}
	if dryRun {
		f.State, f.Do = "nothing was changed", "give a longer --timeout"
	}
	return f
}

package socket

import (
	"cmp"
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
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// DefaultPath is the path of the daemon's socket. A DaemonSet mounts its folder from the host.
const DefaultPath = "/run/vmapd/vmapd.sock"

// Deadline is how long the daemon may take for an answer.
const Deadline = 5 * time.Second

// Client asks the daemon.
type Client struct {
	Path     string        // of the socket
	Deadline time.Duration // for an answer; 0: Deadline
	// Transport carries requests; nil: a connection to the socket for each.
	Transport http.RoundTripper
}

// Reasons of a request's failure: no daemon runs, or it has no socket; or it is late.
var (
	ErrNoDaemon = errors.New("no daemon answers")
	ErrLate     = errors.New("does not answer within")
	// ErrElsewhere is that of a daemon that says nothing about this network namespace.
	ErrElsewhere = errors.New("runs in another network namespace")
)

// Get reads the answer of a path into out. The error is an [*Error] if the daemon refused the request,
// [ErrNoDaemon] if there is none, and [ErrLate] behind the deadline.
func (c Client) Get(ctx context.Context, path string, query url.Values, out any) error {
	deadline := cmp.Or(c.Deadline, Deadline)
	late := fmt.Errorf("the daemon at %s %w %v: it hangs, or the node is overloaded; "+
		"its rules still work, and are not updated", c.Path, ErrLate, deadline)
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, late)
	defer cancel()
	transport := c.Transport
	if transport == nil {
		transport = &http.Transport{DisableKeepAlives: true, DialContext: c.Dial}
	}
	u := url.URL{Scheme: "http", Host: "vmapd", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return c.explain(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return refusal(path, response)
	}
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		return c.explain(ctx, fmt.Errorf("read the answer: %w%s", err, ofAnother))
	}
	return nil
}

// Dial connects to the socket, and refuses a process of another user than root: its answers could be anything.
func (c Client) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Path)
	if err != nil {
		return nil, err
	}
	if !trusted(peer(conn).Uid) {
		_ = conn.Close()
		return nil, fmt.Errorf("the process at %s is not root's: %w", c.Path, ErrNoDaemon)
	}
	return conn, nil
}

// Elsewhere returns an error if the daemon is in another network namespace: it says nothing about the rules and sysctls
// of this one. Why it cannot be reached, a request says.
func (c Client) Elsewhere(ctx context.Context) error {
	conn, _ := c.Dial(ctx, "", "")
	if conn == nil {
		return nil
	}
	defer conn.Close()
	pid := peer(conn).Pid
	differs := func(kind string) bool {
		theirs, err := os.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		ours, mine := os.Stat("/proc/thread-self/ns/" + kind)
		return err == nil && mine == nil && !os.SameFile(theirs, ours)
	}
	if !differs("net") {
		return nil
	}
	user := map[bool]string{true: "-U --preserve-credentials "}[differs("user")]
	return fmt.Errorf("the daemon at %s %w; run this with nsenter -t %d %s-n", c.Path, ErrElsewhere, pid, user)
}

// Listening returns the paths of sockets in this network namespace that have the name of a daemon's.
func Listening() (paths []string) {
	proc, _ := procfs.NewDefaultFS()
	sockets, err := proc.NetUNIX()
	if err != nil {
		return nil
	}
	for _, s := range sockets.Rows {
		if filepath.Base(s.Path) == filepath.Base(DefaultPath) && !slices.Contains(paths, s.Path) {
			paths = append(paths, s.Path)
		}
	}
	return paths
}

// explain returns an error with its reason for people.
func (c Client) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return context.Cause(ctx)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: there is no socket %s. Is vmapd running? Is --socket correct?", ErrNoDaemon, c.Path)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: the process that made the socket %s has ended", ErrNoDaemon, c.Path)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("only root may ask the daemon at %s: %w", c.Path, err)
	}
	return fmt.Errorf("ask the daemon at %s: %w", c.Path, err)
}

// ofAnother is the most likely reason for which an answer is not understood.
const ofAnother = "; if the daemon is of another version than this program, use the program of the daemon's image"

func refusal(path string, response *http.Response) error {
	const most = 64 << 10
	body, _ := io.ReadAll(io.LimitReader(response.Body, most)) // the status says enough
	e := &Error{Status: response.StatusCode}
	if err := json.Unmarshal(body, e); err != nil || e.Message == "" {
		e.Message = fmt.Sprintf("the daemon answers %s with %s%s", path, response.Status, ofAnother)
	}
	return e
}

// Error is an answer that is not the requested value. A [Route] returns it to choose the status;
// [Client.Get] returns it.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"error"`
}

func (e *Error) Error() string { return e.Message }

// NotFound returns the error of a request for an object that does not exist.
func NotFound(message string) *Error { return &Error{http.StatusNotFound, message} }

// BadRequest returns the error of a request that can't be understood.
func BadRequest(message string) *Error { return &Error{http.StatusBadRequest, message} }

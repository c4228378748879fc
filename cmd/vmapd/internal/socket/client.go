package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/sys/unix"
)

// DefaultPath is the path of the daemon's socket. A DaemonSet mounts its folder from the host.
const DefaultPath = "/run/vmapd/vmapd.sock"

// Client asks the daemon.
type Client struct {
	Path string // of the socket
}

// ErrNoDaemon is the reason of a request's failure if no daemon runs, or if it has no socket.
var ErrNoDaemon = errors.New("no daemon answers")

// Get reads the answer of a path into out. The error is an [*Error] if the daemon refused the request,
// and [ErrNoDaemon] if there is none.
func (c Client) Get(ctx context.Context, path string, query url.Values, out any) error {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: c.dial}
	u := url.URL{Scheme: "http", Host: "localhost", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return c.explain(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return refusal(path, response)
	}
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		return fmt.Errorf("the daemon's answer at %s: %w", c.Path, err)
	}
	return nil
}

// dial connects, and refuses a process of another user than root: its answers could be anything.
func (c Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Path)
	if err != nil {
		return nil, err
	}
	if uid, err := peer(conn); err != nil || !trusted(uid) {
		_ = conn.Close()
		return nil, fmt.Errorf("the process at %s is not root's: %w", c.Path, errors.Join(ErrNoDaemon, err))
	}
	return conn, nil
}

// explain returns a clear error for a connection that failed.
func (c Client) explain(err error) error {
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err // without the made-up address
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: there is no socket %s; is vmapd running on this node, with this --socket?", ErrNoDaemon, c.Path)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: the process that made the socket %s has ended", ErrNoDaemon, c.Path)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("only root may ask the daemon at %s: %w", c.Path, err)
	}
	return fmt.Errorf("ask the daemon at %s: %w", c.Path, err)
}

// refusal returns the error of an answer.
func refusal(path string, response *http.Response) error {
	const most = 64 << 10
	body, _ := io.ReadAll(io.LimitReader(response.Body, most)) // the status says enough
	e := &Error{Status: response.StatusCode}
	if err := json.Unmarshal(body, e); err != nil || e.Message == "" {
		e.Message = fmt.Sprintf("the daemon answers %s with %s; is it of another version?", path, response.Status)
	}
	return e
}

package socket

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/sync/httpserver"
)

// Route answers one path: it returns a value that can be marshalled to JSON.
type Route func(ctx context.Context, query url.Values) (any, error)

// NewServer returns a server that answers at the socket of a path, and removes its file in the end; "": it serves
// nothing.
func NewServer(path string, routes map[string]Route, log *slog.Logger) *httpserver.Server {
	mux := http.NewServeMux()
	for path, route := range routes {
		mux.Handle("GET "+path, answer(route))
	}
	return &httpserver.Server{
		Name: "socket", Address: path, Handler: mux, Log: log,
		Listen: func(context.Context, string, string) (net.Listener, error) { return listen(path) },
	}
}

// answer returns a handler that answers with the value of a route, as JSON.
func answer(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		value, err := route(r.Context(), r.URL.Query())
		text, invalid := json.Marshal(value)
		if err = cmp.Or(err, invalid); err != nil {
			e, ok := errors.AsType[*Error](err)
			if !ok {
				e = &Error{http.StatusInternalServerError, err.Error()}
			}
			status = e.Status
			text, _ = json.Marshal(e) // a text has JSON
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(text) // an error means that the client left
	})
}

// listen opens a socket at a path where no process answers. The kernel lets those connect who may write its file: root.
// Close removes the file.
func listen(path string) (net.Listener, error) {
	if err := private(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := free(path); err != nil {
		return nil, err
	}
	defer syscall.Umask(syscall.Umask(0o177)) // the file never has another mode than 0600
	return net.Listen("unix", path)
}

// private makes a folder if there is none, and refuses one where others could put a socket of their own in the place
// of ours.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var dirIs unix.Stat_t
	if err := unix.Stat(dir, &dirIs); err != nil {
		return err
	}
	const writeByOthers = 0o022
	if dirIs.Mode&writeByOthers != 0 || !trusted(dirIs.Uid) {
		return fmt.Errorf("folder %s: it is writable by other users", dir)
	}
	return nil
}

// free removes the file of a process that has ended. It refuses a path at which a process answers, and one of a file
// that is no socket.
func free(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is not a socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return os.Remove(path)
	case err == nil:
		_ = conn.Close()
	}
	return fmt.Errorf("another process answers at %s", path)
}

// trusted reports whether a user may be at the other end: root, or the user of this process, which
// is not root in a namespace of users.
func trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// peer returns the process that has opened the other end of a connection, one of no known user if that is not known.
func peer(c net.Conn) unix.Ucred {
	process := unix.Ucred{Uid: math.MaxUint32}
	if raw, err := c.(*net.UnixConn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // an error means that the connection is closed
			if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				process = *cred
			}
		})
	}
	return process
}

package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/vmapd/vmapd/sync/connlimit"
)

// Limits of clients; see the package's comment.
const (
	maxConnections  = 512 // per address that is served
	maxHeaderBytes  = 64 << 10
	headerTimeout   = 5 * time.Second
	requestTimeout  = 30 * time.Second
	idleTimeout     = 90 * time.Second
	shutdownTimeout = 2 * time.Second
)

// port is one address that is served.
type port struct {
	address  string // as configured
	listener *connlimit.Listener
	server   *http.Server
	handler  http.Handler
	log      *slog.Logger
	done     chan struct{} // closed when the server ended
	err      error         // the reason, valid after done
}

// newPort serves on a listener until close. If serving ends earlier, it calls notify.
func newPort(address string, l net.Listener, c Config, log *slog.Logger, notify func()) *port {
	p := &port{address: address, handler: c.Handler, log: log, done: make(chan struct{})}
	p.listener = connlimit.New(l, maxConnections)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	p.server = &http.Server{
		Handler:           http.HandlerFunc(p.serve),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         protocols,
		// Errors of clients.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer notify()
		defer close(p.done)
		p.err = connlimit.Serve(p.server, p.listener)
	}()
	return p
}

func (p *port) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// close frees the address at once, and waits a moment for running requests.
func (p *port) close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := p.server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = p.server.Close() // its only error is about the listener, which is closed
	}
	<-p.done
}

// serve answers a request within a bounded time. A handler that panics ends only its own
// connection.
func (p *port) serve(w http.ResponseWriter, r *http.Request) {
	defer func() {
		switch reason := recover(); reason {
		case nil:
		case http.ErrAbortHandler:
			panic(reason)
		default:
			p.log.LogAttrs(r.Context(), slog.LevelError, "a handler panicked", slog.String("path", r.URL.Path),
				slog.String("reason", fmt.Sprint(reason)), slog.String("stack", string(debug.Stack())))
			panic(http.ErrAbortHandler) // net/http closes the connection
		}
	}()
	setDeadline(w, time.Now().Add(requestTimeout))
	p.handler.ServeHTTP(w, r)
}

// setDeadline limits the time to read and answer the request.
func setDeadline(w http.ResponseWriter, t time.Time) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(t) // fails only on a connection that is closed
	_ = control.SetWriteDeadline(t)
}

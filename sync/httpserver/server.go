package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Limits of clients.
const (
	maxConnections = 512 // of one port; then the most silent one is closed
	maxHeaderBytes = 64 << 10
	headerTimeout  = 5 * time.Second
	requestTimeout = 30 * time.Second
	idleTimeout    = 90 * time.Second // between requests
	profileTimeout = 10 * time.Minute // a profile takes as long as the client asks for
)

const retryInterval = 5 * time.Second

// Server keeps an address served. Its fields do not change while it runs.
type Server struct {
	Name     string       // in the log and in errors, for example "metrics"
	Address  string       // HOST:PORT; "" serves nothing
	Handler  http.Handler // answers the requests
	HardFail bool         // ends the server with an error if it can't listen; otherwise, it retries every 5 s
	// Failed is called if the server can't listen, once for each error until it can. It must not block; it may be nil.
	Failed func(error)
	Log    *slog.Logger
	// Listen opens the listener, as that of package net does.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)

	err atomic.Pointer[error] // of the last attempt to listen; nil: it listens
}

// Err returns why the address is not served now, or nil.
func (s *Server) Err() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Run serves until ctx ends. With HardFail, it returns an error if it can't listen.
func (s *Server) Run(ctx context.Context) error {
	if s.Address == "" {
		<-ctx.Done()
		return nil
	}
	log := s.Log.With(slog.String("server", s.Name))
	for {
		err := s.serve(ctx, log)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it is to end
		}
		err = fmt.Errorf("%s server: %w", s.Name, err)
		before := s.err.Swap(&err)
		isNew := before == nil || (*before).Error() != err.Error()
		if isNew && s.Failed != nil {
			s.Failed(err)
		}
		if s.HardFail {
			return err
		}
		if isNew {
			log.Error("cannot listen; retrying", slog.Any("err", err), slog.Duration("retry_every", retryInterval))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryInterval):
		}
	}
}

// serve listens, and serves until ctx or the listener ends.
func (s *Server) serve(ctx context.Context, log *slog.Logger) error {
	l, err := s.Listen(ctx, "tcp", s.Address)
	if err != nil {
		return err
	}
	if s.err.Swap(nil) != nil {
		log.Info("listening again")
	}
	log.Info("serving", slog.String("address", l.Addr().String()))
	server := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError), // such as a handler's panic
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // its only error is about the listener
	err = errors.Join(Serve(server, l, maxConnections), server.Close())
	return fmt.Errorf("stopped serving on %s: %w", s.Address, err)
}

// Slow returns a handler of profiles: the client has ten minutes to read one.
func Slow(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control, end := http.NewResponseController(w), time.Now().Add(profileTimeout)
		_ = control.SetReadDeadline(end) // fails only on a connection that is closed
		_ = control.SetWriteDeadline(end)
		h.ServeHTTP(w, r)
	})
}

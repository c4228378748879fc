package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// retryInterval is the interval of retrying to listen, as kube-proxy's.
const retryInterval = 5 * time.Second

// Options of a [Server]. They do not change while it runs.
type Options struct {
	// Name of the server in the log and in errors, for example "metrics".
	Name string
	// HardFail ends the server with an error if it can't listen. Otherwise it retries every
	// 5 s.
	HardFail bool
	// Failed is called if the server can't listen, once for each error until it can. It must
	// not block. It may be nil.
	Failed func(error)
	Log    *slog.Logger
}

// Server keeps addresses served. Its configuration can change while it runs.
type Server struct {
	opts Options
	log  *slog.Logger
	// listen is net.ListenConfig.Listen; tests replace it.
	listen func(ctx context.Context, network, address string) (net.Listener, error)
	wake   chan struct{} // of capacity 1: the configuration changed, or a port ended

	mu     sync.Mutex
	config Config
	open   []*port
	err    error // of the last attempt to listen
}

// New returns a server that does not serve yet.
func New(c Config, o Options) (*Server, error) {
	s := &Server{
		opts: o, log: o.Log.With(slog.String("server", o.Name)),
		listen: (&net.ListenConfig{}).Listen, wake: make(chan struct{}, 1),
	}
	if err := s.configure(c); err != nil {
		return nil, err
	}
	return s, nil
}

// Set changes the configuration. It serves an address that stays without a gap, and opens new
// addresses before it closes others; while a new one can't be opened, the others stay.
//
// If it returns an error, see [Config.Validate], nothing changes.
func (s *Server) Set(c Config) error {
	err := s.configure(c)
	if err == nil {
		s.notify()
	}
	return err
}

func (s *Server) configure(c Config) error {
	c.Addresses = slices.DeleteFunc(slices.Clone(c.Addresses), func(a string) bool { return a == "" })
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%s server: %w", s.opts.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = c
	return nil
}

// Addrs returns the addresses on which the server listens.
func (s *Server) Addrs() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var addrs []net.Addr
	for _, p := range s.open {
		addrs = append(addrs, p.listener.Addr())
	}
	return addrs
}

// Err returns why an address is not served now, or nil.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Server) notify() {
	select {
	case s.wake <- struct{}{}:
	default: // it is already awake
	}
}

// Run serves until ctx ends, then waits up to 2 s for running requests. With HardFail, it
// returns an error if it can't listen.
func (s *Server) Run(ctx context.Context) error {
	defer func() { s.closePorts(s.remove(func(*port) bool { return true })) }()
	said := ""
	for {
		err := s.apply(ctx)
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		var retry <-chan time.Time
		switch {
		case err != nil && s.opts.HardFail:
			s.tell(err)
			return err
		case err != nil:
			retry = time.After(retryInterval)
			if err.Error() != said {
				s.log.LogAttrs(ctx, slog.LevelError, "cannot listen; retrying", slog.Any("err", err), slog.Duration("retry_every", retryInterval))
				s.tell(err)
			}
			said = err.Error()
		case said != "":
			said = ""
			s.log.LogAttrs(ctx, slog.LevelInfo, "listening again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-retry:
		}
	}
}

func (s *Server) tell(err error) {
	if s.opts.Failed != nil {
		s.opts.Failed(err)
	}
}

// apply brings the open ports in line with the configuration.
func (s *Server) apply(ctx context.Context) error {
	s.mu.Lock()
	c := s.config
	s.mu.Unlock()

	var errs []error
	for _, p := range s.remove((*port).ended) {
		errs = append(errs, fmt.Errorf("%s server: stopped serving on %s: %w", s.opts.Name, p.address, p.err))
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // the retry opens them again
	}
	for _, address := range c.Addresses {
		if p := s.find(address); p != nil && p.secure == (c.TLS != nil) {
			p.set(c)
			continue
		}
		if err := s.openPort(ctx, address, c); err != nil {
			errs = append(errs, fmt.Errorf("%s server: %w", s.opts.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.closePorts(s.remove(func(p *port) bool { return !p.wanted(c) }))
	return nil
}

// openPort listens on one more address. First, it may have to close a port of this server that
// is no longer wanted: the same address without TLS, or one that contains it, like 0.0.0.0.
func (s *Server) openPort(ctx context.Context, address string, c Config) error {
	l, err := s.listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		inTheWay := s.remove(func(p *port) bool { return !p.wanted(c) && samePort(p.address, address) })
		for _, p := range inTheWay {
			_ = p.listener.Close() // if it fails, so does listening
		}
		defer s.closePorts(inTheWay) // after the new one serves
		if len(inTheWay) > 0 {
			l, err = s.listen(ctx, "tcp", address)
		}
	}
	if err != nil {
		return err
	}
	p := newPort(address, l, c, s.log, s.notify)
	s.mu.Lock()
	s.open = append(s.open, p)
	s.mu.Unlock()
	s.log.LogAttrs(ctx, slog.LevelInfo, "serving", slog.String("address", l.Addr().String()), slog.Bool("tls", p.secure))
	return nil
}

func samePort(a, b string) bool {
	_, portA, _ := net.SplitHostPort(a)
	_, portB, _ := net.SplitHostPort(b)
	return portA == portB
}

// find returns the port that serves an address, or nil.
func (s *Server) find(address string) *port {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.open, func(p *port) bool { return p.address == address }); i >= 0 {
		return s.open[i]
	}
	return nil
}

// remove removes the matching ports from s.open, and returns them.
func (s *Server) remove(match func(*port) bool) (removed []*port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(p *port) bool {
		if match(p) {
			removed = append(removed, p)
			return true
		}
		return false
	})
	return removed
}

func (s *Server) closePorts(ports []*port) {
	var wait sync.WaitGroup
	for _, p := range ports {
		wait.Go(p.close)
	}
	wait.Wait()
}

package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
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

// Server keeps addresses served.
type Server struct {
	config Config
	opts   Options
	log    *slog.Logger
	// listen is net.ListenConfig.Listen; tests replace it.
	listen func(ctx context.Context, network, address string) (net.Listener, error)
	ended  chan struct{} // of capacity 1: a port ended

	mu   sync.Mutex
	open []*port
	err  error // of the last attempt to listen
}

// New returns a server that does not serve yet.
func New(c Config, o Options) (*Server, error) {
	c.Addresses = slices.DeleteFunc(slices.Clone(c.Addresses), func(a string) bool { return a == "" })
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%s server: %w", o.Name, err)
	}
	return &Server{
		config: c, opts: o, log: o.Log.With(slog.String("server", o.Name)),
		listen: (&net.ListenConfig{}).Listen, ended: make(chan struct{}, 1),
	}, nil
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

// portEnded wakes Run.
func (s *Server) portEnded() {
	select {
	case s.ended <- struct{}{}:
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
		case <-s.ended:
		case <-retry:
		}
	}
}

func (s *Server) tell(err error) {
	if s.opts.Failed != nil {
		s.opts.Failed(err)
	}
}

// apply opens the ports that are not open.
func (s *Server) apply(ctx context.Context) error {
	var errs []error
	for _, p := range s.remove((*port).ended) {
		errs = append(errs, fmt.Errorf("%s server: stopped serving on %s: %w", s.opts.Name, p.address, p.err))
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // the retry opens them again
	}
	for _, address := range s.config.Addresses {
		if s.serves(address) {
			continue
		}
		if err := s.openPort(ctx, address); err != nil {
			errs = append(errs, fmt.Errorf("%s server: %w", s.opts.Name, err))
		}
	}
	return errors.Join(errs...)
}

// openPort listens on one more address.
func (s *Server) openPort(ctx context.Context, address string) error {
	l, err := s.listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	p := newPort(address, l, s.config, s.log, s.portEnded)
	s.mu.Lock()
	s.open = append(s.open, p)
	s.mu.Unlock()
	s.log.LogAttrs(ctx, slog.LevelInfo, "serving", slog.String("address", l.Addr().String()))
	return nil
}

// serves reports whether a port serves an address.
func (s *Server) serves(address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.open, func(p *port) bool { return p.address == address })
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

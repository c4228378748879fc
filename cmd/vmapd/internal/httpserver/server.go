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

// retryInterval is how often a port is tried that can't be opened, as kube-proxy does.
const retryInterval = 5 * time.Second

// Options are what stays the same while a [Server] runs.
type Options struct {
	// Name is what the log and errors call the server, for example "metrics".
	Name string
	// HardFail ends the server with an error when it can't listen. Otherwise it tries
	// again every 5 s.
	HardFail bool
	// Failed is told that the server can't listen, once for each reason until it can. It
	// must not block. nil: nobody is told.
	Failed func(error)
	Log    *slog.Logger
}

// Server keeps addresses served. Its configuration can change while it runs.
type Server struct {
	opts Options
	log  *slog.Logger
	// listen is net.ListenConfig.Listen; tests have another one.
	listen func(ctx context.Context, network, address string) (net.Listener, error)
	wake   chan struct{} // has room for one: the configuration changed, or a port ended

	mu     sync.Mutex
	config Config
	open   []*port
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

// Set changes what is served, and where. An address that stays is served without a gap;
// a new one is opened before those that are no longer wanted are closed. As long as it
// can't be opened, those go on as they were.
//
// An error, see [Config.Validate], means that nothing changes.
func (s *Server) Set(c Config) error {
	err := s.configure(c)
	if err == nil {
		s.notify()
	}
	return err
}

func (s *Server) configure(c Config) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%s server: %w", s.opts.Name, err)
	}
	c.Addresses = slices.Clone(c.Addresses)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = c
	return nil
}

// Addrs returns where the server listens now.
func (s *Server) Addrs() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var addrs []net.Addr
	for _, p := range s.open {
		addrs = append(addrs, p.listener.Addr())
	}
	return addrs
}

func (s *Server) notify() {
	select {
	case s.wake <- struct{}{}:
	default: // it is woken already
	}
}

// Run serves until ctx ends, then lets requests finish for up to 2 s. It returns an error
// only with HardFail: that it can't listen.
func (s *Server) Run(ctx context.Context) error {
	defer func() { s.closePorts(s.remove(func(*port) bool { return true })) }()
	said := ""
	for {
		err := s.apply(ctx)
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
				s.log.LogAttrs(ctx, slog.LevelError, "can't listen", slog.Any("err", err), slog.Duration("retry_every", retryInterval))
				s.tell(err)
			}
			said = err.Error()
		case said != "":
			said = ""
			s.log.LogAttrs(ctx, slog.LevelInfo, "can listen again")
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
		errs = append(errs, fmt.Errorf("%s server: no longer served on %s: %w", s.opts.Name, p.address, p.err))
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // the retry opens them
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

// openPort listens on one more address. One of ours that is no longer wanted may be in
// the way: the same address without TLS, or one that contains it, as 0.0.0.0 does.
func (s *Server) openPort(ctx context.Context, address string, c Config) error {
	l, err := s.listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		inTheWay := s.remove(func(p *port) bool { return !p.wanted(c) && samePort(p.address, address) })
		for _, p := range inTheWay {
			_ = p.listener.Close() // if it fails, so does listen
		}
		defer s.closePorts(inTheWay) // when the new one serves
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

// remove takes the ports that match out of the open ones.
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

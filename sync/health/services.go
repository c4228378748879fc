package health

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/httpserver"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// retry is the pause until a port in use is tried again; a successful round is an occasion, too.
const retry = 500 * time.Millisecond

// ServicesOptions are the options of a Services. Each is needed.
type ServicesOptions struct {
	// Healthy is [Tracker.Healthy]. Any number of goroutines call it.
	Healthy func() bool
	// Restricted: --nodeport-addresses excludes addresses of the node. Then each node-port address but loopback gets a
	// listener. Otherwise one listener of each family serves all addresses, as in kube-proxy.
	Restricted bool
	// Failed is called, by the goroutine of Run, when a Service's port can't be opened at an address, and again when the
	// reason changes. The error names the address.
	Failed func(service model.NamespacedName, err error)
	// Log gets the same errors, and when they end.
	Log *slog.Logger
}

// Services answers load balancers on the healthCheckNodePort of each Service that has one: 200 if the node has local
// endpoints that are ready and the proxy is healthy, else 503; to any method and path. The IP families are apart, as in
// kube-proxy.
//
// It is an observer of a [reconcile.Loop]. Each family follows the rounds that succeeded for it. While a family fails,
// its answers stay as they are until the proxy becomes unhealthy. If two Services have the same port, which model
// reports, the one that listens on it keeps it.
type Services struct {
	ServicesOptions
	listen func(context.Context, netip.AddrPort) (net.Listener, error)
	limits limits
	last   *reconcile.Worker[programmed]
	checks map[place]*check // Run's alone
}

// programmed has the last programmed snapshot of each family.
type programmed [len(model.Families)]*model.Snapshot

// place is where a Service's health check is answered. The unspecified address stands for all of its family.
type place struct {
	service model.NamespacedName
	at      netip.AddrPort
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.service.Namespace, b.service.Namespace), cmp.Compare(a.service.Name, b.service.Name),
		a.at.Compare(b.at))
}

// NewServices returns a Services. It does not listen before Run.
func NewServices(o ServicesOptions) *Services {
	return &Services{
		ServicesOptions: o, listen: listenTCP, limits: limits{request: 5 * time.Second, idle: time.Minute},
		last: reconcile.NewWorker(programmed{}), checks: map[place]*check{},
	}
}

// Done implements [reconcile.Observer].
func (s *Services) Done(r reconcile.Round) {
	s.last.With(func(last *programmed) {
		for f := range last {
			if r.Err == nil || !r.Failed[f] {
				last[f] = r.Snapshot
			}
		}
	})
	s.last.Wake()
}

// Run listens until ctx ends. All listeners and connections are closed when it returns. Call it once.
func (s *Services) Run(ctx context.Context) {
	s.last.Run(ctx, func() time.Duration {
		var now programmed
		s.last.With(func(last *programmed) { now = *last })
		s.update(now)
		return s.open(ctx)
	})
	for _, c := range s.checks {
		c.close()
	}
}

// update closes the listeners that nobody wants, but opens none: another Service may have to free the port first.
func (s *Services) update(programmed programmed) {
	wanted := map[place]int{} // with the ready endpoints on this node
	for _, f := range model.Families {
		if programmed[f] == nil {
			continue
		}
		addrs := []netip.Addr{f.Unspecified()}
		if s.Restricted {
			addrs = slices.DeleteFunc(slices.Clone(programmed[f].Family(f).NodePortAddrs), netip.Addr.IsLoopback)
		}
		for name, h := range programmed[f].HealthChecks.All() {
			for _, a := range addrs {
				if in := h.Families[f]; in.Has {
					wanted[place{name, netip.AddrPortFrom(a, h.Port)}] = in.LocalEndpoints
				}
			}
		}
	}
	for p, c := range s.checks {
		if _, ok := wanted[p]; !ok {
			c.close()
			delete(s.checks, p)
		}
	}
	for p, local := range wanted {
		if s.checks[p] == nil {
			s.checks[p] = &check{service: p.service, healthy: s.Healthy}
		}
		s.checks[p].local.Store(int64(local))
	}
}

// open opens the missing listeners, and returns the time until the next try; less than 0: none is missing.
func (s *Services) open(ctx context.Context) time.Duration {
	again := time.Duration(-1)
	for _, p := range slices.SortedFunc(maps.Keys(s.checks), comparePlaces) {
		c := s.checks[p]
		if c.opened {
			continue
		}
		socket, err := s.listen(ctx, p.at)
		switch {
		case err == nil:
			c.stop = serve(socket, c, s.limits)
		case p.at.Addr().IsUnspecified() && errors.Is(err, syscall.EAFNOSUPPORT):
			err = nil // a host without IPv6 has no client that could ask
		}
		if c.opened = err == nil; !c.opened {
			again = retry
		}
		s.report(ctx, p, err)
	}
	return again
}

// report logs an error once, and its end.
func (s *Services) report(ctx context.Context, p place, err error) {
	if ctx.Err() != nil || !s.checks[p].said.Differs(err) {
		return
	}
	log := s.Log.With(slog.String("service", p.service.String()), slog.Int("port", int(p.at.Port())),
		slog.String("family", model.FamilyOf(p.at.Addr()).String()))
	if err == nil {
		log.Info("listening on health-check port again")
		return
	}
	log.Warn("cannot listen on health-check port; retrying", slog.Any("err", err))
	s.Failed(p.service, err)
}

// check answers the health checks of one Service at one place.
type check struct {
	service model.NamespacedName
	healthy func() bool
	local   atomic.Int64 // ready endpoints on this node

	// The rest is Services.Run's alone.
	opened bool
	stop   func() // nil: nothing listens
	said   reconcile.LastError
}

func (c *check) close() {
	if c.stop != nil {
		c.stop()
	}
}

// checkBody is the same as kube-proxy's.
type checkBody struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int64 `json:"localEndpoints"`
	ServiceProxyHealthy bool  `json:"serviceProxyHealthy"`
}

// ServeHTTP answers any request. It does not depend on Status.Eligible: ready endpoints on
// a node that is being deleted are still served (KEP-3836).
func (c *check) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body := checkBody{LocalEndpoints: c.local.Load(), ServiceProxyHealthy: c.healthy()}
	body.Service.Namespace, body.Service.Name = c.service.Namespace, c.service.Name
	text, _ := json.MarshalIndent(body, "", "\t") // it can't fail with these types
	// For load balancers that spread by it.
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(body.LocalEndpoints, 10))
	ok := body.LocalEndpoints > 0 && body.ServiceProxyHealthy
	answer{ok, typeJSON, string(text)}.send(w)
}

// limits bound the resources that clients can use. Tests have lower ones.
type limits struct {
	request time.Duration // for a whole request, and for its answer
	idle    time.Duration // between requests of one connection
}

const (
	maxHeader      = 4 << 10 // bytes; net/http adds 4096
	maxConnections = 128     // of one Service at one address
)

// serve answers connections to socket until stop is called, which frees the address, and ends the connections. One
// that is accepted at this moment may get one more answer.
func serve(socket net.Listener, h http.Handler, limits limits) (stop func()) {
	server := &http.Server{
		Handler:     h,
		ReadTimeout: limits.request, WriteTimeout: limits.request, IdleTimeout: limits.idle,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true,                       // h answers "OPTIONS *", too
		ErrorLog:                     log.New(io.Discard, "", 0), // of malformed requests
	}
	go func() { _ = httpserver.Serve(server, socket, maxConnections) }() // it ends with stop only
	return func() {
		_ = socket.Close() // Serve may not know of it yet
		_ = server.Close()
	}
}

// listenTCP opens a socket of the address's family alone. Go sets SO_REUSEADDR: lingering connections of an earlier
// process do not block the port (socket(7)).
func listenTCP(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // one short request needs no second path
	network := map[model.Family]string{model.IPv4: "tcp4", model.IPv6: "tcp6"}[model.FamilyOf(at.Addr())]
	return config.Listen(ctx, network, at.String())
}

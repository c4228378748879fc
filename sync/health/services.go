package health

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/vmapd/vmapd/sync/reconcile"
)

// retry is the pause until a port in use is tried again; a successful round is an occasion, too.
const retry = 500 * time.Millisecond

// ServicesOptions are the options of a Services.
type ServicesOptions struct {
	// Healthy reports whether the proxy is healthy, also on a node that is being deleted:
	// Tracker.Healthy. Any number of goroutines call it.
	Healthy func() bool
	// Restricted: --nodeport-addresses excludes addresses of the node. Then each node-port address but loopback gets a
	// listener. Otherwise one listener of each family serves all addresses, as in kube-proxy.
	Restricted bool
	// Serve serves connections of a listener, and bounds their number; nil: http.Server's own, without a bound.
	Serve func(*http.Server, net.Listener) error
	// Failed is called, by the goroutine of Run, when a Service's port can't be opened, and
	// again when the reason changes. The error names the address. It may be nil.
	Failed func(service model.NamespacedName, port uint16, err error)
	// Log gets the same errors, and when they end. nil discards it.
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
	healthy func() bool
	failed  func(model.NamespacedName, uint16, error)
	log     *slog.Logger
	listen  func(context.Context, netip.AddrPort) (net.Listener, error)
	serve   func(*http.Server, net.Listener) error
	limits  limits
	last    *reconcile.Worker[programmed]

	restricted bool // see ServicesOptions

	// The rest is Run's alone.
	families [len(model.Families)]familyChecks
	missing  map[*check]struct{} // the checks that don't listen on all of addrs
}

// programmed has the last programmed snapshot of each family.
type programmed [len(model.Families)]*model.Snapshot

// familyChecks are the checks of one IP family.
type familyChecks struct {
	applied *model.Snapshot // the one that checks follow
	addrs   []netip.Addr    // where to listen, the unspecified address stands for all
	checks  map[model.NamespacedName]*check
}

// NewServices returns a Services. It does not listen before Run.
func NewServices(o ServicesOptions) *Services {
	if o.Failed == nil {
		o.Failed = func(model.NamespacedName, uint16, error) {}
	}
	if o.Serve == nil {
		o.Serve = (*http.Server).Serve
	}
	s := &Services{
		healthy: o.Healthy, failed: o.Failed, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		listen: listenTCP, serve: o.Serve, limits: limits{request: 5 * time.Second, idle: time.Minute},
		last: reconcile.NewWorker(programmed{}), restricted: o.Restricted,
		missing: map[*check]struct{}{},
	}
	for f := range s.families {
		s.families[f] = familyChecks{checks: map[model.NamespacedName]*check{}}
	}
	return s
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
	defer func() {
		for _, f := range model.Families {
			for _, c := range s.families[f].checks {
				c.closeBut()
			}
		}
	}()
	s.last.Run(ctx, func() time.Duration {
		s.update()
		s.openMissing(ctx)
		if len(s.missing) == 0 {
			return -1
		}
		return retry
	})
}

// update applies changes, but opens no listeners: another Service may have to free the port first.
func (s *Services) update() {
	var now programmed
	s.last.With(func(last *programmed) { now = *last })
	for _, f := range model.Families {
		if now[f] != nil {
			s.updateFamily(f, now[f])
		}
	}
}

func (s *Services) updateFamily(f model.Family, snapshot *model.Snapshot) {
	in := &s.families[f]
	for c := range snapshot.HealthCheckChanges(in.applied) {
		s.change(f, c.Old, c.New)
	}
	in.applied = snapshot
	addrs := addresses(snapshot.Family(f), s.restricted)
	if slices.Equal(addrs, in.addrs) {
		return
	}
	in.addrs = addrs
	for _, c := range in.checks {
		c.closeBut(addrs...)
		s.missing[c] = struct{}{}
	}
}

// addresses returns where to listen. The unspecified address stands for all of its family.
func addresses(snapshot *model.FamilySnapshot, restricted bool) []netip.Addr {
	if !restricted {
		return []netip.Addr{snapshot.Family.Unspecified()}
	}
	var list []netip.Addr
	for _, a := range snapshot.NodePortAddrs {
		if !a.IsLoopback() {
			list = append(list, a)
		}
	}
	return list
}

func (s *Services) change(f model.Family, was, now *model.HealthCheck) {
	in := &s.families[f]
	if now == nil || !now.Families[f].Has {
		if was != nil {
			s.forget(f, was.Service)
		}
		return
	}
	c := in.checks[now.Service]
	if c == nil {
		c = &check{service: now.Service, family: f, healthy: s.healthy, listeners: map[netip.Addr]*listener{}}
		in.checks[now.Service] = c
	}
	c.local.Store(int64(now.Families[f].LocalEndpoints))
	if c.port != now.Port {
		c.closeBut()
		c.port = now.Port
		s.missing[c] = struct{}{}
	}
}

// forget removes the check of a Service, if it has one.
func (s *Services) forget(f model.Family, service model.NamespacedName) {
	in := &s.families[f]
	if c := in.checks[service]; c != nil {
		c.closeBut()
		delete(s.missing, c)
		delete(in.checks, service)
	}
}

// openMissing opens the missing listeners.
func (s *Services) openMissing(ctx context.Context) {
	list := slices.SortedFunc(maps.Keys(s.missing), func(a, b *check) int {
		return cmp.Or(cmp.Compare(a.service.Namespace, b.service.Namespace), cmp.Compare(a.service.Name, b.service.Name),
			cmp.Compare(a.family, b.family))
	})
	for _, c := range list {
		err := s.open(ctx, c)
		if err == nil {
			delete(s.missing, c)
		}
		s.report(ctx, c, err)
	}
}

// open opens a check's missing listeners. A failure of one does not stop the others.
func (s *Services) open(ctx context.Context, c *check) error {
	var first error
	failed := 0
	for _, a := range s.families[c.family].addrs {
		if c.listeners[a] != nil {
			continue
		}
		socket, err := s.listen(ctx, netip.AddrPortFrom(a, c.port))
		if err == nil {
			c.listeners[a] = serve(socket, c, s.limits, s.serve)
			continue
		}
		if a.IsUnspecified() && errors.Is(err, syscall.EAFNOSUPPORT) {
			continue // a host without IPv6 has no client that could ask
		}
		failed++
		first = cmp.Or(first, err)
	}
	if failed > 1 {
		return fmt.Errorf("%w, and %d errors more", first, failed-1)
	}
	return first
}

// report logs an error once, and its end.
func (s *Services) report(ctx context.Context, c *check, err error) {
	if ctx.Err() != nil || !c.said.Differs(err) {
		return
	}
	attrs := []slog.Attr{
		slog.String("service", c.service.String()), slog.Int("port", int(c.port)), slog.String("family", c.family.String()),
	}
	if err == nil {
		s.log.LogAttrs(ctx, slog.LevelInfo, "listening on health-check port again", attrs...)
		return
	}
	attrs = append(attrs, slog.Any("err", err))
	s.log.LogAttrs(ctx, slog.LevelWarn, "cannot listen on health-check port; retrying", attrs...)
	s.failed(c.service, c.port, err)
}

// check answers the health checks of one Service in one IP family.
type check struct {
	service model.NamespacedName
	family  model.Family
	healthy func() bool
	local   atomic.Int64 // ready endpoints on this node

	// The rest is Services.Run's alone.
	port      uint16
	listeners map[netip.Addr]*listener // the unspecified address stands for all of its family
	said      reconcile.LastError
}

// closeBut closes the listeners on all but some addresses.
func (c *check) closeBut(addrs ...netip.Addr) {
	for at, l := range c.listeners {
		if !slices.Contains(addrs, at) {
			l.close()
			delete(c.listeners, at)
		}
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

// maxHeader is in bytes; net/http adds 4096.
const maxHeader = 4 << 10

// listener serves HTTP at one address.
type listener struct {
	socket net.Listener
	server *http.Server
}

// serve answers connections to socket until close.
func serve(
	socket net.Listener, h http.Handler, limits limits, serve func(*http.Server, net.Listener) error,
) *listener {
	l := &listener{socket: socket, server: &http.Server{
		Handler:     h,
		ReadTimeout: limits.request, WriteTimeout: limits.request, IdleTimeout: limits.idle,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true,                       // h answers "OPTIONS *", too
		ErrorLog:                     log.New(io.Discard, "", 0), // of malformed requests
	}}
	go func() { _ = serve(l.server, socket) }() // it ends with close only
	return l
}

// close frees the address, and ends the connections. One that is accepted at this moment may get one more answer.
func (l *listener) close() {
	_ = l.socket.Close() // Serve may not know of it yet
	_ = l.server.Close()
}

// listenTCP opens a socket of the address's family alone. The unspecified address stands for all of them. Go sets
// SO_REUSEADDR: lingering connections of an earlier process do not block the port (socket(7)).
func listenTCP(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // one short request needs no second path
	network := map[model.Family]string{model.IPv4: "tcp4", model.IPv6: "tcp6"}[model.FamilyOf(at.Addr())]
	return config.Listen(ctx, network, at.String())
}

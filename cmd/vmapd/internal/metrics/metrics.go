package metrics

import (
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // counts requests to the API server
	"k8s.io/component-base/metrics/prometheus/slis"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
)

// Backends, as kube-proxy calls its modes.
const (
	NFTables = "nftables"
	IPTables = "iptables"
	IPVS     = "ipvs"
)

// Options of Metrics. The functions are called at each scrape, by several goroutines at once;
// what has none is not shown.
type Options struct {
	Backend string // NFTables, IPTables or IPVS
	Reason  string // why it was chosen
	// Families are those that the backend programs. None means both.
	Families []model.Family
	// Build is what the toolchain noted in this program; nil means to ask it.
	Build *debug.BuildInfo
	// Started is when the process began. What was caused before does not count as time that
	// programming took. Zero means now.
	Started time.Time

	// NFT returns what the nftables backend has done.
	NFT func() [len(model.Families)]BackendStats
	// Legacy returns what the iptables or the IPVS backend has done.
	Legacy func() [len(model.Families)]host.Stats
	// Pending counts changed objects that no round has taken yet.
	Pending func() (services, endpointSlices int)
	// Localhost is about node ports on loopback.
	Localhost func() [len(model.Families)]LocalhostStats
	// ConntrackTable is how full the kernel's table of connections is, and ok if that is known.
	ConntrackTable func() (entries, limit uint64, ok bool)
	// EventsDropped counts events that were not sent to the API server.
	EventsDropped func() uint64
	// ServiceConnections counts new connections, each service port of a family once.
	ServiceConnections func() []ServiceCount
}

// BackendStats is what a backend has done for one IP family.
type BackendStats struct {
	Batches    uint64
	Operations uint64
	Bytes      uint64
	Rejected   int    // service ports that the kernel refuses now
	Repairs    uint64 // comparisons that found changes by others
}

// LocalhostStats is about the listeners of one IP family that serve node ports on loopback.
type LocalhostStats struct {
	Listeners int    // open now
	Failures  uint64 // to open one
	Accepted  uint64 // connections
}

// ServiceCount counts the new connections to one service port.
type ServiceCount struct {
	Name        model.ServicePortName
	Family      model.Family
	Connections uint64
}

// Metrics are the figures of one daemon. It is a reconcile.Observer. Any number of goroutines
// may use it.
type Metrics struct {
	options  Options
	families []model.Family
	registry *prometheus.Registry
	handler  http.Handler
	sliMux   *http.ServeMux

	proxy proxyFigures
	own   ownFigures

	mu     sync.Mutex
	rounds rounds
}

// New returns Metrics that know of no round yet.
func New(o Options) *Metrics {
	if o.Build == nil {
		o.Build, _ = debug.ReadBuildInfo()
	}
	if o.Started.IsZero() {
		o.Started = time.Now()
	}
	m := &Metrics{
		options: o, families: o.Families, registry: prometheus.NewRegistry(), sliMux: http.NewServeMux(),
		rounds: rounds{kinds: map[string]bool{}},
	}
	if len(m.families) == 0 {
		m.families = slices.Clone(model.Families[:])
	}
	m.registerProxy()
	m.registerOwn()
	m.registerBuild()
	slis.SLIMetrics{}.Install(m.sliMux)
	// OpenMetrics is not offered: it writes le="1.0" for le="1", which would be other series
	// than those of kube-proxy. One figure that can't be read must not hide the others.
	gather := prometheus.Gatherers{m.registry, legacyregistry.DefaultGatherer}
	m.handler = promhttp.HandlerFor(gather, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, Registry: m.registry, ProcessStartTime: o.Started,
	})
	return m
}

// Handler answers /metrics.
func (m *Metrics) Handler() http.Handler { return m.handler }

// SLIHandler answers /metrics/slis, with what the probes of the daemon were told.
func (m *Metrics) SLIHandler() http.Handler { return m.sliMux }

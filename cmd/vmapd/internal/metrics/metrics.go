package metrics

import (
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // metrics of requests to the API server
	"k8s.io/component-base/metrics/prometheus/slis"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
)

// Backends, by the names of kube-proxy's modes.
const (
	NFTables = "nftables"
	IPTables = "iptables"
	IPVS     = "ipvs"
	// Userspace is vmapd's own; kube-proxy had it until 1.25.
	Userspace = "userspace"
)

// Options of Metrics. Each scrape calls the functions, several scrapes at once. Without its
// function, a metric does not exist.
type Options struct {
	Backend string // NFTables, IPTables, IPVS or Userspace
	Reason  string // why the backend was chosen
	// Build is the build information of this program. Default: that of the runtime.
	Build *debug.BuildInfo
	// Started is when the process began. Changes before it are not part of the programming
	// latency.
	Started time.Time

	// NFT returns the counters of the nftables backend.
	NFT func(model.Family) kernel.Stats
	// Legacy returns the counters of the iptables or the IPVS backend.
	Legacy func() [len(model.Families)]host.Stats
	// Pending counts changed objects that wait for the next sync.
	Pending func() (services, endpointSlices int)
	// Localhost is about node ports on loopback.
	Localhost func() [len(model.Families)]userspace.Stats
	// ConntrackTable returns the size and the limit of the connection tracking table, or an
	// error if they are not known.
	ConntrackTable func() (entries, limit int, err error)
	// APIServerHeard returns when the API server last sent something that made sense, by the plural
	// names of the kinds of objects.
	APIServerHeard func() map[string]time.Time
	// Findings counts the lines of vmapd doctor that are not ok; a check without one has 0. Before the
	// first examination, there are none.
	Findings func() map[Finding]int
	// Leftovers counts the objects of other proxies and backends on the node.
	Leftovers func() map[host.Leftover]int
	// OtherProxy returns whether the signs of another proxy are there, by kind.
	OtherProxy func() map[string]bool
	// ForeignChanges counts changes of our rules by others; nil if the backend has none.
	ForeignChanges func() kernel.ForeignChanges
	// ServiceConnections returns the number of new connections of each service port and family.
	ServiceConnections func() []kernel.Count
}

// Finding is a check of vmapd doctor, and its result.
type Finding struct{ Check, Level string }

// Metrics are the metrics of one daemon. It is a reconcile.Observer, and safe for concurrent use.
type Metrics struct {
	options  Options
	registry *prometheus.Registry
	handler  http.Handler
	sliMux   *http.ServeMux

	proxy proxyFigures
	own   ownFigures

	mu     sync.Mutex
	rounds rounds
}

// New returns Metrics before the first sync.
func New(o Options) *Metrics {
	if o.Build == nil {
		o.Build, _ = debug.ReadBuildInfo()
	}
	m := &Metrics{
		options: o, registry: prometheus.NewRegistry(), sliMux: http.NewServeMux(),
		rounds: rounds{kinds: map[string]bool{}},
	}
	m.registerProxy()
	m.registerOwn()
	m.registerBuild()
	slis.SLIMetrics{}.Install(m.sliMux)
	// OpenMetrics is not offered: it writes le="1.0" for le="1", so the series would differ from
	// kube-proxy's. An error about one metric must not hide the others.
	gather := prometheus.Gatherers{m.registry, legacyregistry.DefaultGatherer}
	m.handler = promhttp.HandlerFor(gather, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, Registry: m.registry, ProcessStartTime: o.Started,
	})
	return m
}

// Handler answers /metrics.
func (m *Metrics) Handler() http.Handler { return m.handler }

// SLIHandler answers /metrics/slis with the results of the daemon's probes.
func (m *Metrics) SLIHandler() http.Handler { return m.sliMux }

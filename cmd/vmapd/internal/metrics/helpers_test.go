package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prom "github.com/prometheus/common/model"
	"k8s.io/component-base/metrics/prometheus/feature"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Addresses are the repository's: pods 10.0.0.0/8, ClusterIPs 172.30.0.0/16, ours is node .2.

var (
	backends = []config.Backend{config.NFTables, config.IPTables, config.IPVS}
	started  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later    = started.Add(time.Minute)
)

func buildInfo() *debug.BuildInfo {
	return &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "github.com/vmapd/vmapd", Version: "v0.4.1+dirty"},
		Deps:      []*debug.Module{{Path: "k8s.io/api", Version: "v0.36.9"}, {Path: "k8s.io/client-go", Version: "v0.37.2"}},
		Settings: []debug.BuildSetting{
			{Key: "-compiler", Value: "gc"},
			{Key: "GOARCH", Value: "amd64"},
			{Key: "GOOS", Value: "linux"},
			{Key: "vcs.revision", Value: "91e6221"},
			{Key: "vcs.time", Value: "2026-03-01T11:00:00Z"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
}

// bare are options of a node of which nothing is known.
func bare(backend config.Backend) Options {
	o := Options{
		Backend: backend, Reason: "--backend=" + string(backend), Build: buildInfo(), Started: started,
		NFT:            func(model.Family) kernel.Stats { return kernel.Stats{} },
		Pending:        func() (int, int) { return 0, 0 },
		Queued:         func() (last, since time.Time) { return last, since },
		Localhost:      func() (none [2]userspace.Stats) { return none },
		ConntrackTable: func() (int, int, error) { return 0, 0, errors.New("not known") },
		Findings:       func() map[Finding]int { return nil },
	}
	if backend != config.NFTables {
		o.NFT, o.Legacy = nil, func() (none [2]host.Stats) { return none }
	}
	return o
}

// connections counts two Services.
func connections(context.Context) ([]kernel.Count, error) {
	name := func(namespace, service, port string, p model.Protocol) model.ServicePortName {
		return model.ServicePortName{NamespacedName: model.NamespacedName{Namespace: namespace, Name: service}, Port: port, Protocol: p}
	}
	return []kernel.Count{
		{Name: name("ns1", "web", "http", model.TCP), Family: model.IPv4, Connections: 12},
		{Name: name("ns1", "web", "http", model.TCP), Family: model.IPv6, Connections: 3},
		{Name: name("kube-system", "dns", "", model.UDP), Family: model.IPv4, Connections: 1 << 40},
	}, nil
}

// all are options with all functions that a backend can have.
func all(backend config.Backend) Options {
	o := bare(backend)
	o.Pending = func() (int, int) { return 2, 5 }
	o.Queued = func() (last, since time.Time) { return later.Add(-time.Second), since }
	o.Localhost = func() [2]userspace.Stats {
		return [2]userspace.Stats{{Listeners: 3, Missing: 1, Failures: 1, Accepted: 40}, {Listeners: 2, Accepted: 2}}
	}
	o.APIServerHeard = func() map[string]time.Time {
		return map[string]time.Time{"services": later, "endpointslices": later.Add(time.Second)}
	}
	o.Findings = func() map[Finding]int {
		return map[Finding]int{{"firewall", "warn"}: 0, {"firewall", "fail"}: 2, {"clock", "warn"}: 1, {"clock", "fail"}: 0}
	}
	o.ConntrackTable = func() (int, int, error) { return 4711, 262144, nil }
	o.ServiceConnections = connections
	if backend == config.NFTables {
		o.NFT = func(f model.Family) kernel.Stats {
			return [2]kernel.Stats{
				{Batches: 7, Operations: 5000, Rejected: 1, Repairs: 2},
				{Batches: 1, Operations: 40},
			}[f]
		}
		return o
	}
	o.Legacy = func() [2]host.Stats {
		s := [2]host.Stats{
			{Operations: 600, RestoreFailures: 3, PartialRestoreFailures: 2},
			{Operations: 10},
		}
		if backend == config.IPTables {
			for f := range s {
				s[f].Rules = map[string]int{"filter": 20 + f, "nat": 100 + f}
				s[f].RulesWritten = map[string]int{"filter": 0, "nat": 4 + f}
				s[f].InvalidDropped, s[f].Repairs = uint64(30+f), 1
			}
		}
		return s
	}
	return o
}

// round is one that went well; change makes it another.
func round(s *model.Snapshot, change func(*reconcile.Round)) reconcile.Round {
	r := reconcile.Round{Snapshot: s, Started: later, Took: 3 * time.Millisecond, Services: 1, EndpointSlices: 2}
	if change != nil {
		change(&r)
	}
	return r
}

// objects are what the tests program: both families, a Local policy without local endpoints,
// and two objects with problems.
func objects(more ...modeltest.Object) []modeltest.Object {
	return append([]modeltest.Object{
		modeltest.OurNode(),
		modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").TCP("http", 80).Policies("Local", "Cluster"),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.3"),
		modeltest.NewService("ns1/bad").On("172.30.0.42").TCP("http", 0).TCP("other", 70000),
		modeltest.NewService("ns1/worse").On("172.30.0.x").TCP("http", 80),
	}, more...)
}

// fed returns Metrics to which everything has happened.
func fed(o Options) *Metrics {
	m := New(o)
	s := modeltest.Snapshot(modeltest.Config(), objects()...)
	m.Done(round(s, func(r *reconcile.Round) {
		r.Full, r.Err, r.Failed[model.IPv6] = true, errors.New("no"), true
		r.Triggers = [2][]time.Time{{later.Add(-700 * time.Millisecond)}, {later.Add(-700 * time.Millisecond)}}
	}))
	m.Done(round(s, func(r *reconcile.Round) {
		r.Started = later.Add(2 * time.Second)
		more := []time.Time{later.Add(-4 * time.Second), later.Add(3 * time.Second)}
		r.Triggers = [2][]time.Time{more, more}
	}))
	m.HTTP("/healthz", 200)
	m.HTTP("/healthz", 503)
	m.HTTP("/livez", 200)
	m.HTTP("/readyz", 200)
	m.Conntrack(conntrack.Pass{Family: model.IPv4, Took: 20 * time.Millisecond, Deleted: 5})
	m.ConfigRead(nil)
	m.ConfigRead(errors.New("no"))
	feature.RecordFeatureInfo(context.Background(), "NFTablesProxyMode", "", true)
	feature.RecordFeatureInfo(context.Background(), "AnAlphaGate", "ALPHA", false)
	return m
}

// get asks a handler as Prometheus does.
func get(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// parse reads an exposition; twice the same family or series is an error.
func parse(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(prom.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return families
}

func scrape(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	return parse(t, get(t, m.Handler, "/metrics"))
}

// series returns the series of a family, each as `{a="b"} 1`, sorted. Of histograms, count and
// sum are the value.
func series(f *dto.MetricFamily) []string {
	list := []string{}
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		text := fmt.Sprintf("{%s} %v", strings.Join(labels, ","), value)
		if h := m.GetHistogram(); h != nil {
			text = fmt.Sprintf("{%s} %d %.4g", strings.Join(labels, ","), h.GetSampleCount(), h.GetSampleSum())
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

// text writes families as they are exposed.
func text(t *testing.T, families map[string]*dto.MetricFamily, names []string) string {
	t.Helper()
	var b bytes.Buffer
	for _, n := range names {
		if _, err := expfmt.MetricFamilyToText(&b, families[n]); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

package metrics

import (
	"context"
	"strconv"
	"strings"
	"time"

	"k8s.io/component-base/metrics/prometheus/feature"
	"k8s.io/component-base/metrics/prometheus/slis"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// maxTriggers limits the remembered times of changes that are not programmed yet, for a node
// on which syncs fail for a long time.
const maxTriggers = 10_000

// rounds is the state between syncs.
type rounds struct {
	problems *model.Snapshot // the snapshot whose problems are counted, or nil
	kinds    map[string]bool // of objects that had problems

	// Changes since the last successful sync.
	services, endpointSlices int
	triggers                 [len(model.Families)][]time.Time
}

var _ reconcile.Queuer = (*Metrics)(nil)

// Queued implements reconcile.Queuer.
func (m *Metrics) Queued(at time.Time) {
	for _, f := range model.Families {
		m.proxy.lastQueued.WithLabelValues(f.String()).Set(seconds(at))
	}
}

// Done implements reconcile.Observer.
func (m *Metrics) Done(r reconcile.Round) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proxy.services.Add(float64(r.Services))
	m.proxy.endpointSlices.Add(float64(r.EndpointSlices))
	m.rounds.services += r.Services
	m.rounds.endpointSlices += r.EndpointSlices
	if r.Err == nil {
		m.rounds.services, m.rounds.endpointSlices = 0, 0
	}
	for _, f := range model.Families {
		m.duration(f, r)
		m.remember(f, r)
		if r.Failed[f] || len(r.Refused[f]) > 0 {
			m.failed(f)
		}
		if !r.Failed[f] {
			m.programmed(f, r)
		}
	}
	m.countProblems(r.Snapshot)
}

func (m *Metrics) duration(f model.Family, r reconcile.Round) {
	took := r.Took.Seconds()
	m.proxy.duration.WithLabelValues(f.String()).Observe(took)
	switch {
	case m.proxy.full == nil:
	case r.Full:
		m.proxy.full.WithLabelValues(f.String()).Observe(took)
	default:
		m.proxy.partial.WithLabelValues(f.String()).Observe(took)
	}
}

// remember keeps the times of changes until they are programmed.
func (m *Metrics) remember(f model.Family, r reconcile.Round) {
	kept := &m.rounds.triggers[f]
	for _, t := range r.Triggers[f] {
		if len(*kept) < maxTriggers && !t.Before(m.options.Started) {
			*kept = append(*kept, t)
		}
	}
}

func (m *Metrics) failed(f model.Family) {
	m.own.failures.WithLabelValues(f.String()).Inc()
	if m.proxy.failures != nil {
		m.proxy.failures.WithLabelValues(f.String()).Inc()
	}
}

// programmed updates the metrics after a family was programmed.
func (m *Metrics) programmed(f model.Family, r reconcile.Round) {
	name, end, s := f.String(), r.Started.Add(r.Took), r.Snapshot.Family(f)
	m.proxy.lastSync.WithLabelValues(name).Set(seconds(end))
	for _, t := range m.rounds.triggers[f] {
		// The clock of another machine may be ahead.
		m.proxy.programming.WithLabelValues(name).Observe(max(0, end.Sub(t).Seconds()))
	}
	m.rounds.triggers[f] = nil
	internal, external := s.NoLocalEndpoints()
	m.proxy.noLocalEndpoints.WithLabelValues(name, "internal").Set(float64(internal))
	m.proxy.noLocalEndpoints.WithLabelValues(name, "external").Set(float64(external))
	m.own.unserved.WithLabelValues(name).Set(float64(s.UnservedEndpoints()))
	m.own.servicePorts.WithLabelValues(name).Set(float64(s.NumServicePorts()))
	m.own.ready.WithLabelValues(name).Set(1)
}

// countProblems counts objects with problems, if the problems have changed.
func (m *Metrics) countProblems(s *model.Snapshot) {
	if m.rounds.problems != nil && s.SameProblems(m.rounds.problems) {
		return
	}
	m.rounds.problems = s
	objects := map[string]int{}
	over := map[model.Budget]int{}
	var last model.Problem
	for _, p := range s.Problems() { // sorted by object
		if p.Object != last.Object || p.Budget != last.Budget { // a budget may be exceeded in both families
			over[p.Budget]++
		}
		if p.Object != last.Object {
			objects[p.Object.Kind]++
			m.rounds.kinds[p.Object.Kind] = true
		}
		last = p
	}
	for _, b := range model.AllBudgets {
		m.own.overBudget.WithLabelValues(string(b)).Set(float64(over[b]))
	}
	for kind := range m.rounds.kinds {
		m.own.rejected.WithLabelValues(kind).Set(float64(objects[kind]))
	}
}

// pending returns how many changed objects are not programmed.
func (m *Metrics) pending() (services, endpointSlices int) {
	m.mu.Lock()
	services, endpointSlices = m.rounds.services, m.rounds.endpointSlices
	m.mu.Unlock()
	if m.options.Pending == nil {
		return services, endpointSlices
	}
	moreServices, moreSlices := m.options.Pending()
	return services + moreServices, endpointSlices + moreSlices
}

// HTTP records an answer of /healthz, /livez or /readyz.
func (m *Metrics) HTTP(path string, code int) {
	status := slis.Success
	if code >= 400 {
		status = slis.Error
	}
	switch path {
	case "/healthz":
		m.proxy.healthz.WithLabelValues(strconv.Itoa(code)).Inc()
	case "/livez":
		m.proxy.livez.WithLabelValues(strconv.Itoa(code)).Inc()
	}
	_ = slis.ObserveHealthcheck(context.Background(), "sync", strings.TrimPrefix(path, "/"), status) // it never fails
}

// Conntrack records a pass over the connections of a family, and the number of deleted ones.
func (m *Metrics) Conntrack(f model.Family, took time.Duration, deleted int) {
	m.proxy.conntrackDuration.WithLabelValues(f.String()).Observe(took.Seconds())
	m.proxy.conntrackDeleted.WithLabelValues(f.String()).Add(float64(deleted))
}

// Batch records a batch of the nftables backend.
func (m *Metrics) Batch(f model.Family, operations, bytes int, took time.Duration) {
	if m.own.batchOperations == nil {
		return
	}
	m.own.batchOperations.WithLabelValues(f.String()).Observe(float64(operations))
	m.own.batchBytes.WithLabelValues(f.String()).Observe(float64(bytes))
	m.own.batchDuration.WithLabelValues(f.String()).Observe(took.Seconds())
}

// ConfigRead records that the configuration was read, also at the start. err is the reason why it is invalid.
func (m *Metrics) ConfigRead(err error) {
	valid := 1.0
	if err != nil {
		valid = 0
	}
	m.own.configRead.WithLabelValues().Set(valid)
}

// Feature records whether a feature gate is on. Stage is ALPHA, BETA, DEPRECATED, or empty for
// a generally available feature.
func (m *Metrics) Feature(name, stage string, enabled bool) {
	feature.RecordFeatureInfo(context.Background(), name, stage, enabled)
}

// seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }

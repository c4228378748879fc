package metrics

import (
	"context"
	"strconv"
	"strings"
	"time"

	"k8s.io/component-base/metrics/prometheus/slis"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Done implements reconcile.Observer.
func (m *Metrics) Done(r reconcile.Round) {
	m.services.Add(float64(r.Services))
	m.endpointSlices.Add(float64(r.EndpointSlices))
	compared := m.partial
	if r.Full {
		compared = m.full
	}
	for _, f := range model.Families {
		name := f.String()
		m.duration.WithLabelValues(name).Observe(r.Took.Seconds())
		compared.WithLabelValues(name).Observe(r.Took.Seconds())
		// Kept until they are programmed, if that is soon: syncs may fail for a long time.
		times := append(m.triggers[f], r.Triggers[f]...)
		m.triggers[f] = times[:min(len(times), reconcile.MaxTriggers)]
		if r.Failed[f] || len(r.Refused[f]) > 0 {
			m.failures.WithLabelValues(name).Inc()
			m.nftFailures.WithLabelValues(name).Inc()
		}
		if !r.Failed[f] {
			m.programmed(f, r)
		}
	}
	m.last.Store(r.Snapshot)
}

// programmed updates the metrics after a family was programmed.
func (m *Metrics) programmed(f model.Family, r reconcile.Round) {
	name, end, s := f.String(), r.Started.Add(r.Took), r.Snapshot.Family(f)
	m.lastSync.WithLabelValues(name).Set(seconds(end))
	for _, t := range m.triggers[f] {
		// The clock of another machine may be ahead.
		m.programming.WithLabelValues(name).Observe(max(0, end.Sub(t).Seconds()))
	}
	m.triggers[f] = nil
	m.noLocalEndpoints.WithLabelValues(name, "internal").Set(float64(s.NoLocal.Internal))
	m.noLocalEndpoints.WithLabelValues(name, "external").Set(float64(s.NoLocal.External))
	m.unserved.WithLabelValues(name).Set(float64(s.Unserved))
	m.servicePorts.WithLabelValues(name).Set(float64(s.NumServicePorts()))
	m.ready.WithLabelValues(name).Set(1)
}

// objectsBy returns the number of objects with problems by a word about a problem.
func (m *Metrics) objectsBy(word func(model.Problem) string) map[string]int {
	last, counts, seen := m.last.Load(), map[string]int{}, map[model.Problem]bool{}
	if last == nil {
		return counts
	}
	for _, p := range last.Problems {
		of := model.Problem{Object: p.Object, Message: word(p)} // a budget may be exceeded in both families
		if !seen[of] {
			counts[of.Message]++
		}
		seen[of] = true
	}
	return counts
}

// HTTP records an answer of /healthz, /livez or /readyz.
func (m *Metrics) HTTP(path string, code int) {
	status := slis.Success
	if code >= 400 {
		status = slis.Error
	}
	if answers, ok := m.probes[path]; ok {
		answers.WithLabelValues(strconv.Itoa(code)).Inc()
	}
	_ = slis.ObserveHealthcheck(context.Background(), "sync", strings.TrimPrefix(path, "/"), status) // it never fails
}

// Conntrack records a pass over the connections of a family.
func (m *Metrics) Conntrack(pass conntrack.Pass) {
	m.conntrackDuration.WithLabelValues(pass.Family.String()).Observe(pass.Took.Seconds())
	m.conntrackDeleted.WithLabelValues(pass.Family.String()).Add(float64(pass.Deleted))
}

// ConfigRead records that the configuration was read again. err is the reason why it is invalid.
func (m *Metrics) ConfigRead(err error) {
	m.configRead.Set(map[bool]float64{true: 1}[err == nil])
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }

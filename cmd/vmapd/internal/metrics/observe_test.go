package metrics

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

func expect(t *testing.T, what string, m *Metrics, want map[string][]string) {
	t.Helper()
	families := scrape(t, m)
	for name, list := range want {
		if diff := cmp.Diff(list, series(families[name])); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", what, name, diff)
		}
	}
}

// bothFail makes a round one that failed.
func bothFail(r *reconcile.Round) {
	r.Err, r.Failed = errors.New("no"), [2]bool{true, true}
}

func TestOneFamilyFails(t *testing.T) {
	m := New(bare(config.NFTables))
	s := modeltest.Snapshot(modeltest.Config(), objects()...)
	m.Done(round(s, func(r *reconcile.Round) { r.Err, r.Failed[model.IPv4] = errors.New("no"), true }))
	expect(t, "IPv4 failed", m, map[string][]string{
		"vmapd_ready":               {`{ip_family="IPv4"} 0`, `{ip_family="IPv6"} 1`},
		"vmapd_sync_failures_total": {`{ip_family="IPv4"} 1`, `{ip_family="IPv6"} 0`},
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total": {`{ip_family="IPv4"} 1`, `{ip_family="IPv6"} 0`},
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds":       {`{ip_family="IPv6"} 1.772366460003e+09`},
		"kubeproxy_sync_proxy_rules_duration_seconds": {
			`{ip_family="IPv4"} 1 0.003`,
			`{ip_family="IPv6"} 1 0.003`,
		},
	})
}

func TestARefusedServicePortIsAFailureOfAProgrammedFamily(t *testing.T) {
	m := New(bare(config.NFTables))
	s := modeltest.Snapshot(modeltest.Config(), objects()...)
	m.Done(round(s, func(r *reconcile.Round) {
		r.Err, r.Refused[model.IPv4] = errors.New("no"), map[model.ServicePortName]bool{{}: true}
	}))
	expect(t, "IPv4 has one", m, map[string][]string{
		"vmapd_ready":               {`{ip_family="IPv4"} 1`, `{ip_family="IPv6"} 1`},
		"vmapd_sync_failures_total": {`{ip_family="IPv4"} 1`, `{ip_family="IPv6"} 0`},
	})
}

func TestNetworkProgrammingDuration(t *testing.T) {
	const name = "kubeproxy_network_programming_duration_seconds"
	only4 := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(),
		modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80))
	triggers := func(at ...time.Duration) func(*reconcile.Round) {
		return func(r *reconcile.Round) {
			r.Took = 0
			for _, d := range at {
				r.Triggers[model.IPv4] = append(r.Triggers[model.IPv4], later.Add(d))
			}
		}
	}
	for _, tt := range []struct {
		name   string
		rounds []func(*reconcile.Round)
		want   string
	}{
		{"two changes", []func(*reconcile.Round){triggers(-time.Second, -3*time.Second)}, `{ip_family="IPv4"} 2 4`},
		{"a clock is ahead", []func(*reconcile.Round){triggers(time.Second, -3*time.Second)}, `{ip_family="IPv4"} 2 3`},
		{"not while rounds fail", []func(*reconcile.Round){func(r *reconcile.Round) {
			triggers(-time.Second)(r)
			bothFail(r)
		}}, `{ip_family="IPv4"} 0 0`},
		{"up to the round that goes well", []func(*reconcile.Round){
			func(r *reconcile.Round) {
				triggers(-time.Second)(r)
				bothFail(r)
			},
			func(r *reconcile.Round) { r.Started, r.Took = later.Add(10*time.Second), 0 },
			triggers(),
		}, `{ip_family="IPv4"} 1 11`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := New(bare(config.NFTables))
			for _, change := range tt.rounds {
				m.Done(round(only4, change))
			}
			expect(t, "of a cluster with IPv4 alone", m, map[string][]string{name: {tt.want, `{ip_family="IPv6"} 0 0`}})
		})
	}
}

func TestObjectsOverTheirBudgets(t *testing.T) {
	c := modeltest.Config()
	c.Budgets = model.Budgets{Ports: 2, Entries: 1}
	web := modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::41").Sticky(60).TCP("p1", 81).TCP("p2", 82)
	other := modeltest.NewService("ns1/other").On("172.30.0.42").Sticky(60).TCP("p1", 81).TCP("p2", 82)
	b := modeltest.Builder(c, web.TCP("p3", 83), other.TCP("p3", 83))
	m := New(bare(config.NFTables))
	const name = "vmapd_objects_over_budget"
	want := func(entries, ports int) map[string][]string {
		return map[string][]string{name: {
			`{budget="endpoints"} 0`, fmt.Sprintf(`{budget="entries"} %d`, entries),
			fmt.Sprintf(`{budget="ports"} %d`, ports), `{budget="problems"} 0`,
		}}
	}
	m.Done(round(b.Snapshot(), nil))
	expect(t, "two Services, one of them in both families", m, want(2, 2))
	web.Set(b)
	m.Done(round(b.Snapshot(), nil))
	expect(t, "one with fewer ports", m, want(2, 1))
}

package model_test

import (
	"fmt"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/persist"
)

var configs = modeltest.ModelConfigs

// tight are budgets that random clusters exceed.
var tight = model.Budgets{Ports: 2, Endpoints: 3, Entries: 20, Problems: 2}

func TestOrderAndHistoryDoNotMatter(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			config := configs[seed%uint64(len(configs))]
			if seed%2 == 1 {
				config.Budgets = tight
			}
			r := modeltest.NewRandom(modeltest.Seed(seed))
			b := model.NewBuilder(config)
			for round := range 30 {
				r.Steps(b, 1+r.IntN(5))
				want := model.NewBuilder(config)
				r.Rebuild(want)
				testaid.Equal(t, fmt.Sprintf("round %d: after all changes, against the same objects from nothing", round),
					textOf(want.Snapshot()), textOf(b.Snapshot()))
				if t.Failed() {
					return
				}
			}
		})
	}
}

func TestChangesAreExactlyTheDifference(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := modeltest.NewRandom(modeltest.Seed(seed))
			b := model.NewBuilder(configs[seed%uint64(len(configs))])
			all := []*model.Snapshot{b.Snapshot()}
			for range 40 {
				r.Steps(b, r.IntN(4))
				now := b.Snapshot()
				// Against the one just before, where much is shared, and against any
				// older one, where little is.
				for _, before := range []*model.Snapshot{all[len(all)-1], all[r.IntN(len(all))]} {
					checkChanges(t, before, now)
					checkChanges(t, now, before)
				}
				all = append(all, now)
			}
		})
	}
}

// checkChanges compares a snapshot's changes from another with those that brute force finds.
func checkChanges(t *testing.T, old, now *model.Snapshot) {
	t.Helper()
	for _, f := range model.Families {
		a, b := old.Family(f), now.Family(f)
		wantPorts, gotPorts := map[model.ServicePortName]string{}, map[model.ServicePortName]string{}
		oldPorts, nowPorts := pointers(old)[f], pointers(now)[f]
		for name, sp := range oldPorts {
			if nowPorts[name] != sp {
				wantPorts[name] = fmt.Sprintf("%p to %p", sp, nowPorts[name])
			}
		}
		for name, sp := range nowPorts {
			if oldPorts[name] != sp {
				wantPorts[name] = fmt.Sprintf("%p to %p", oldPorts[name], sp)
			}
		}
		for c := range b.ServicePortChanges(a) {
			sp := c.New
			if sp == nil {
				sp = c.Old
			}
			if _, ok := gotPorts[sp.Name]; ok {
				t.Errorf("%v is in the changes twice", sp.Name)
			}
			gotPorts[sp.Name] = fmt.Sprintf("%p to %p", c.Old, c.New)
		}
		testaid.Equal(t, "changed service ports", wantPorts, gotPorts)
		testaid.Equal(t, "number of service ports", len(nowPorts), b.NumServicePorts())

		testaid.Equal(t, "changed cluster IPs",
			difference(addrs(a.ClusterIPs), addrs(b.ClusterIPs)), changes(b.ClusterIPs.Changes(model.AddrKeys, a.ClusterIPs)))
		testaid.Equal(t, "changed hairpins",
			difference(addrs(a.Hairpins), addrs(b.Hairpins)), changes(b.Hairpins.Changes(model.AddrKeys, a.Hairpins)))
		testaid.Equal(t, "changed endpoints",
			difference(addrs(a.ServiceEndpoints), addrs(b.ServiceEndpoints)), changes(b.ServiceEndpoints.Changes(model.VIPKeys, a.ServiceEndpoints)))
	}
}

// difference returns the lines of only one of two lists.
func difference(old, now []string) map[string]string {
	d := map[string]string{}
	for _, s := range old {
		d[s] = "gone"
	}
	for _, s := range now {
		if _, ok := d[s]; ok {
			delete(d, s)
		} else {
			d[s] = "come"
		}
	}
	return d
}

func changes[T interface {
	comparable
	String() string
}](all func(func(persist.Change[T, struct{}]) bool)) map[string]string {
	d := map[string]string{}
	for c := range all {
		switch {
		case c.InOld == c.InNew:
			d[c.Key.String()] += "both or neither"
		case c.InOld:
			d[c.Key.String()] += "gone"
		default:
			d[c.Key.String()] += "come"
		}
	}
	return d
}

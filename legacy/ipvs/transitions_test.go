package ipvs_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Transitions that random clusters rarely make, each in both directions, with packets from
// everywhere after each step.
func TestTransitionsAreSafe(t *testing.T) {
	web := modeltest.NewService("ns1/web").On("172.30.0.41").LoadBalancer("192.168.98.11").TCP("", 80).NodePort(30001)
	local, internal := web.Policies("", "Local"), web.Policies("Local", "Local")
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("", 8080)
	other := modeltest.NewService("ns1/other").On("172.30.0.42").LoadBalancer("192.168.98.11").TCP("", 80).NodePort(30001)
	otherSlice := modeltest.NewSlice("ns1/other-1", "other").TCP("", 8081).Ready("10.0.0.7").Local("10.0.0.8")
	here, there, both := slice.Local("10.0.0.2"), slice.Ready("10.0.0.3"), slice.Local("10.0.0.2").Ready("10.0.0.3")
	elsewhere, nowhere := slice.Ready("10.0.0.4"), slice
	type objects = []modeltest.Object
	for _, tt := range []struct {
		name string
		a, b objects
	}{
		{"a first endpoint", objects{web, nowhere}, objects{web, both}},
		{"all endpoints are replaced", objects{web, both}, objects{web, elsewhere}},
		{"… and with policy Local", objects{local, both}, objects{local, elsewhere}},
		{"policy Local, the last one here", objects{local, both}, objects{local, there}},
		{"policy Local, the last one at all", objects{local, there}, objects{local, nowhere}},
		{"policies Local, the last one at all", objects{internal, both}, objects{internal, nowhere}},
		{"policy Cluster becomes Local", objects{web, both}, objects{local, both}},
		{"… with an endpoint here only then", objects{web, there}, objects{local, here}},
		{"… and there is none here", objects{web, both}, objects{local, elsewhere}},
		{"… for both policies", objects{web, both}, objects{internal, there}},
		{"the ranges change, and all endpoints", objects{web.Ranges("10.0.0.0/8"), here}, objects{web.Ranges("203.0.113.0/24"), there}},
		{"… with policy Local", objects{local.Ranges("10.0.0.0/8"), here}, objects{local.Ranges("203.0.113.0/24"), there}},
		{"a range becomes wider, and endpoints change", objects{web.Ranges("203.0.113.7/32"), here}, objects{web.Ranges("203.0.113.0/24"), there}},
		{"… and another comes", objects{web.Ranges("203.0.113.7/32"), here}, objects{web.Ranges("203.0.113.0/24", "10.0.0.0/8"), there}},
		{"everybody is a range", objects{local.Ranges("203.0.113.7/32"), here}, objects{local.Ranges("0.0.0.0/0"), there}},
		{"ranges where there were none", objects{web, here}, objects{web.Ranges("203.0.113.7/32"), there}},
		{"… with policy Local", objects{local, both}, objects{local.Ranges("203.0.113.7/32"), there}},
		{"a Service comes", nil, objects{web, both}},
		{"… with policy Local", nil, objects{local, both}},
		{"… that has no endpoint here", nil, objects{internal, there}},
		{"… that has none at all", nil, objects{web, nowhere}},
		{"… that has ranges", nil, objects{local.Ranges("203.0.113.7/32"), both}},
		{"its addresses come to another", objects{web, both, otherSlice}, objects{other, both, otherSlice}},
		{"… with policy Local", objects{local, both, otherSlice}, objects{other.Policies("", "Local"), both, otherSlice}},
		{"… from Cluster to Local", objects{web, both, otherSlice}, objects{other.Policies("Local", "Local"), both, otherSlice}},
		{"… with ranges", objects{web.Ranges("10.0.0.0/8"), both, otherSlice}, objects{other.Ranges("203.0.113.0/24"), both, otherSlice}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, config := range configs {
				base := objects{modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16")}
				b := modeltest.Builder(config, slices.Concat(base, tt.a)...)
				first := b.Snapshot().Family(model.IPv4)
				goTo := func(from, to objects) *model.FamilySnapshot {
					for _, o := range from {
						o.Delete(b)
					}
					for _, o := range to {
						o.Set(b)
					}
					return b.Snapshot().Family(model.IPv4)
				}
				second := goTo(tt.a, tt.b)
				third := goTo(tt.b, tt.a)
				one := ipvs.Compile(nil, first, ipvs.Options{})
				two := ipvs.Compile(nil, second, ipvs.Options{})
				three := ipvs.Compile(nil, third, ipvs.Options{})
				watchPlan(t, one.Content(), two.Content(), second, ipvs.Diff(one, two))
				watchPlan(t, two.Content(), three.Content(), third, ipvs.Diff(two, three))
				// The plan of a start includes the settings.
				empty := ipvs.NewContent(model.IPv4)
				watchPlan(t, ipvssim.Clone(empty), two.Content(), second, ipvs.DiffContent(empty, two))
			}
		})
	}
}

// watchPlan sends packets from everywhere to everywhere after each operation.
func watchPlan(t *testing.T, before, after *ipvs.Content, s *model.FamilySnapshot, plan ipvs.Plan) {
	t.Helper()
	simBefore, simAfter := simulate(t, ipvssim.Clone(before), s), simulate(t, ipvssim.Clone(after), s)
	var all []watched
	for _, source := range []string{"203.0.113.7", "203.0.113.9", "10.0.0.2", "10.0.0.9", modeltest.NodeIP4} {
		for _, dest := range []string{
			"172.30.0.41:80", "172.30.0.41:81", "172.30.0.42:80", "172.30.0.99:80", "192.168.98.11:80", "192.168.98.11:22",
			modeltest.NodeIP4 + ":30001", modeltest.NodeIP4 + ":22",
		} {
			c := model.Connection{
				Source: netip.MustParseAddr(source), Dest: netip.MustParseAddrPort(dest), Protocol: model.TCP,
				Interface: modeltest.Uplink,
			}
			switch {
			case source == modeltest.NodeIP4:
				c.Node, c.Interface = true, ""
			case c.Source.Is4() && c.Source.As4()[0] == 10:
				c.Interface = modeltest.PodInterface
			}
			all = append(all, watched{Connection: c, before: run(t, simBefore, c), after: run(t, simAfter, c)})
		}
	}
	if before.Rules == nil || after.Rules == nil {
		for i := range all {
			all[i].endpoints = map[netip.AddrPort]bool{}
			for _, o := range []ipvssim.Outcome{all[i].before, all[i].after} {
				for to := range o.To {
					all[i].endpoints[to] = true
				}
			}
		}
	}
	sendAlong(t, before, s, plan, all)
}

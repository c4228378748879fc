package model_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

var exclusionTexts = map[model.Exclusion]string{
	model.NotExcluded: "not excluded", model.NotServing: "not serving", model.NotLocal: "not local",
	model.ReadyOnesExist: "ready ones exist", model.HintsOtherNodes: "hints other nodes", model.HintsOtherZones: "hints other zones",
}

// selectionTexts are a selection's candidates and slices, one a line.
func selectionTexts(c model.Selection) []string {
	list := []string{}
	for _, e := range c.Candidates {
		list = append(list, fmt.Sprintf("%v: cluster: %s, local: %s",
			e.Addr, exclusionTexts[e.Excluded[model.Cluster]], exclusionTexts[e.Excluded[model.Local]]))
	}
	for _, name := range c.NoPort {
		list = append(list, name.String()+": no port")
	}
	for _, name := range c.OverBudget {
		list = append(list, name.String()+": over budget")
	}
	return list
}

func withHints(nodes, zones []string) func(*model.SliceEndpoint) {
	return func(e *model.SliceEndpoint) { e.HintNodes, e.HintZones = nodes, zones }
}

func TestSelectionSaysWhyNot(t *testing.T) {
	here, there := modeltest.OnNode(modeltest.NodeName), modeltest.OnNode("node-2")
	draining, gone := modeltest.Conditions(false, true, true), modeltest.Conditions(false, false, true)
	unready := modeltest.Conditions(false, false, false)
	slice := func(name string) modeltest.Slice { return modeltest.NewSlice("ns1/"+name, "web").TCP("http", 8080) }
	node := modeltest.OurNode()
	node.Zone = "zone-a"
	ours, others := []string{modeltest.NodeName}, []string{"node-2"}
	zoneA, zoneB := []string{"zone-a"}, []string{"zone-b"}

	for _, tt := range []struct {
		name   string
		slices []modeltest.Slice
		hints  model.Hints
		want   []string
	}{
		{"no slice", nil, model.NoHints, nil},
		{
			"all conditions, and one endpoint in two slices",
			[]modeltest.Slice{
				slice("a").Endpoint("10.0.0.2", here).Endpoint("10.0.0.3", here, draining).Endpoint("10.0.0.4", there, unready),
				slice("b").Endpoint("10.0.0.2", there).Endpoint("10.0.0.5", there).Endpoint("10.0.0.6", here, gone),
			},
			model.NoHints,
			[]string{
				"10.0.0.2:8080: cluster: not excluded, local: not excluded",
				"10.0.0.3:8080: cluster: ready ones exist, local: ready ones exist",
				"10.0.0.4:8080: cluster: not serving, local: not serving",
				"10.0.0.5:8080: cluster: not excluded, local: not local",
				"10.0.0.6:8080: cluster: not serving, local: not serving",
			},
		},
		{
			"an older pod had the address",
			[]modeltest.Slice{
				slice("a").Endpoint("10.0.0.2", here, draining).Endpoint("10.0.0.3", here, draining).
					Endpoint("10.0.0.4", here, gone),
				slice("b").Endpoint("10.0.0.2", there).Endpoint("10.0.0.3", there, unready).Endpoint("10.0.0.4", there, gone),
			},
			model.NoHints,
			[]string{
				"10.0.0.2:8080: cluster: not excluded, local: not local",
				"10.0.0.3:8080: cluster: not serving, local: not serving",
				"10.0.0.4:8080: cluster: not serving, local: not serving",
			},
		},
		{
			"hints for zones",
			[]modeltest.Slice{slice("a").Endpoint("10.0.0.2", here, withHints(nil, zoneB)).Endpoint("10.0.0.3", there, withHints(nil, zoneA))},
			model.ZoneHints,
			[]string{
				"10.0.0.2:8080: cluster: hints other zones, local: not excluded",
				"10.0.0.3:8080: cluster: not excluded, local: not local",
			},
		},
		{
			"hints for Nodes go first",
			[]modeltest.Slice{slice("a").Endpoint("10.0.0.2", here, withHints(ours, zoneA)).Endpoint("10.0.0.3", there, withHints(others, zoneA))},
			model.NodeHints,
			[]string{
				"10.0.0.2:8080: cluster: not excluded, local: not excluded",
				"10.0.0.3:8080: cluster: hints other nodes, local: not local",
			},
		},
		{
			"slices that offer nothing",
			[]modeltest.Slice{
				modeltest.NewSlice("ns1/a", "web").TCP("web", 8080).Ready("10.0.0.2"),
				modeltest.NewSlice("ns1/b", "web").UDP("http", 8080).Ready("10.0.0.2", "10.0.0.3"),
				modeltest.NewSlice("ns1/c", "web").IPv6().TCP("http", 8080),
				slice("d"),
			},
			model.NoHints,
			[]string{"ns1/a: no port", "ns1/b: no port"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := modeltest.Builder(modeltest.Config(), node, web())
			for _, s := range tt.slices {
				s.Set(b)
			}
			got := b.Selection(modeltest.PortName("ns1/web", "http", model.TCP), model.IPv4)
			testaid.Equal(t, "selection", append([]string{}, tt.want...), selectionTexts(got))
			testaid.Equal(t, "hints", tt.hints, got.Hints)
		})
	}
}

// The selection must agree with the snapshot: a list that a frontend uses has the endpoints that
// are not excluded, and no others.
func TestSelectionAgreesWithTheSnapshot(t *testing.T) {
	excluded, included := 0, 0
	for seed := range uint64(100) {
		r := modeltest.NewRandom(modeltest.Seed(seed))
		b := model.NewBuilder(modeltest.Config())
		r.Steps(b, 150)
		snapshot := b.Snapshot()
		for _, f := range model.Families {
			for sp := range snapshot.Family(f).ServicePorts() {
				selection := b.Selection(sp.Name, f)
				for _, l := range model.TrafficPolicies {
					if !slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool { return fe.Uses(l) }) {
						continue
					}
					var want, got []string
					for e := range sp.In(l) {
						want = append(want, e.Addr.String())
					}
					for _, c := range selection.Candidates {
						if c.Excluded[l] != model.NotExcluded {
							excluded++
							continue
						}
						included++
						got = append(got, c.Addr.String())
					}
					testaid.Equal(t, fmt.Sprintf("seed %d: %v, %v list", seed, sp.Name, l), want, got)
				}
			}
		}
	}
	if excluded < 100 || included < 100 {
		t.Errorf("%d candidates were excluded, %d were not: the clusters show too little", excluded, included)
	}
}

// A selection includes changes since the last snapshot, also of the zone.
func TestSelectionIsOfNow(t *testing.T) {
	node := modeltest.OurNode()
	zones := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).
		Endpoint("10.0.0.2", withHints(nil, []string{"zone-a"})).Endpoint("10.0.0.3", withHints(nil, []string{"zone-b"}))
	b := modeltest.Builder(modeltest.Config(), node, web(), zones)
	b.Snapshot()
	node.Zone = "zone-b"
	node.Set(b)
	testaid.Equal(t, "selection", []string{
		"10.0.0.2:8080: cluster: hints other zones, local: not local",
		"10.0.0.3:8080: cluster: not excluded, local: not local",
	}, selectionTexts(b.Selection(modeltest.PortName("ns1/web", "http", model.TCP), model.IPv4)))
}

func TestClaimants(t *testing.T) {
	young := modeltest.NewService("ns1/young").CreatedAt(9).On("172.30.0.42").External("192.168.99.1").TCP("", 80)
	old := modeltest.NewService("ns1/old").CreatedAt(1).On("172.30.0.43").External("192.168.99.1").TCP("http", 80).NodePort(30080)
	twice := modeltest.NewService("ns1/twice").On("172.30.0.44").TCP("a", 80).UDP("c", 80)
	b := modeltest.Builder(modeltest.Config(), young, old, twice)
	f := b.Snapshot().Family(model.IPv4)
	for sp := range f.ServicePorts() {
		for _, fe := range sp.Frontends {
			want := []string{sp.Name.String()}
			if fe.Kind == model.ExternalIP {
				want = append(want, "ns1/young")
			}
			got := []string{}
			for _, n := range b.Claimants(fe.VIP) {
				got = append(got, n.String())
			}
			testaid.Equal(t, fe.VIP.String(), want, got)
		}
	}
	if got := b.Claimants(model.VIP{Addr: netip.IPv4Unspecified(), Protocol: model.UDP, Port: 30080}); got != nil {
		t.Errorf("claimants of what nobody asks for: %v", got)
	}
}

package iptables_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// nodePorts is the default number of node ports: 30000 to 32767.
const nodePorts = 2768

// cluster has Services with endpoints each, and as many node ports as possible.
func cluster(services, endpointsPer int) *model.Builder {
	b := model.NewBuilder(modeltest.Config())
	modeltest.Feed(b, modeltest.Cluster(services, endpointsPer))
	for i := range min(services, nodePorts) {
		modeltest.ClusterService(i).NodePort(30000 + int32(i)).Set(b)
	}
	return b
}

// The number of rules that a new connection meets does not depend on the number of Services. In
// one chain with 10,000 of them, as kube-proxy has, it would meet 5,000 on average.
func TestANewConnectionMeetsFewRules(t *testing.T) {
	const perKind, endpoints = 300, 10
	for _, tt := range []struct {
		services                   int
		clusterIP, nodePort, other int // at most
	}{
		{100, 50, 60, 60},
		{1000, 70, 70, 85},
	} {
		t.Run(fmt.Sprintf("%d services", tt.services), func(t *testing.T) {
			s := cluster(tt.services, endpoints).Snapshot().Family(model.IPv4)
			sim := iptsim.New(load(t, iptables.Compile(nil, s, iptables.Options{})), s.NodeAddrs...)
			for _, kind := range []struct {
				name string
				most int
				to   func(i int) model.Connection
			}{
				{"pod to cluster IP", tt.clusterIP, func(i int) model.Connection {
					vip := netip.MustParseAddr(modeltest.ClusterService(i % tt.services).ClusterIPs[0])
					return connection(modeltest.Pod(model.IPv4, i), vip, 80)
				}},
				{"outside to node port", tt.nodePort, func(i int) model.Connection {
					port := 30000 + i%min(tt.services, nodePorts)
					return connection(outside, netip.MustParseAddr(modeltest.NodeIP4), uint16(port))
				}},
				{"pod to no Service", tt.other, func(i int) model.Connection {
					to := netip.AddrFrom4([4]byte{203, 0, byte(i * 7), byte(i * 13)})
					return connection(modeltest.Pod(model.IPv4, i), to, 443)
				}},
			} {
				worst, mean := 0, 0.0
				for i := range perKind {
					o, err := sim.Run(kind.to(i * 37))
					if err != nil {
						t.Fatal(err)
					}
					worst, mean = max(worst, o.RulesMet), mean+o.RulesMetMean/perKind
				}
				t.Logf("%6d services, %-20s worst %3d, mean %.1f", tt.services, kind.name, worst, mean)
				if worst > kind.most {
					t.Errorf("%s: a connection meets up to %d rules, want at most %d", kind.name, worst, kind.most)
				}
			}
		})
	}
}

var outside = netip.MustParseAddr("203.0.113.7")

func connection(source, dest netip.Addr, port uint16) model.Connection {
	return model.Connection{
		Source: source, Interface: modeltest.Uplink, Dest: netip.AddrPortFrom(dest, port), Protocol: model.TCP,
	}
}

// bigSlice has n endpoints for a Service big, from one slice.
func bigSlice(n int) modeltest.Slice {
	s := modeltest.NewSlice("ns1/big-1", "big").TCP("http", 8080)
	for i := range n {
		s.Endpoints = append(s.Endpoints, model.SliceEndpoint{
			Addresses: []string{modeltest.Pod(model.IPv4, i).String()}, NodeName: "node-2",
		})
	}
	return s
}

// One endpoint changes: only the chain of its list is written, and with the first or the last one the way there.
func TestAChangeOfOneEndpointWritesItsList(t *testing.T) {
	for _, tt := range []struct {
		name          string
		sticky        bool
		before, after int // endpoints
		want          iptables.Size
	}{
		{"nothing changes", false, 10, 10, iptables.Size{}},
		{"one more", false, 10, 11, iptables.Size{Chains: 1, Rules: 12}},
		{"one more, with affinity", true, 10, 11, iptables.Size{Chains: 1, Rules: 23}},
		{"the last one goes", false, 1, 0, iptables.Size{Chains: 2, Rules: 3, Deleted: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			service := modeltest.NewService("ns1/big").On("172.30.0.41").TCP("http", 80)
			if tt.sticky {
				service = service.Sticky(60)
			}
			b := cluster(20, 3)
			service.Set(b)
			bigSlice(tt.before).Set(b)
			have := iptables.Compile(nil, b.Snapshot().Family(model.IPv4), iptables.Options{})
			bigSlice(tt.after).Set(b)
			want := iptables.Compile(nil, b.Snapshot().Family(model.IPv4), iptables.Options{})
			batch := iptables.Diff(have, want)
			if got := batch.Size(); got != tt.want {
				t.Errorf("writes %+v, want %+v:\n%s", got, tt.want, batch.Text())
			}
			checkApplied(t, load(t, have), batch, want)
		})
	}
}

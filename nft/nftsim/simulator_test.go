package nftsim_test

import (
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// The address plan is modeltest's: pods 10.0.0.0/8, ClusterIPs 172.30.0.0/16, nodes
// 192.168.0.0/24 (ours .2), ExternalIPs 192.168.99.0/24, outside 203.0.113.0/24.

var sameShare = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })

// example has one Service with three endpoints, one of them on this node and one on the
// node's own address, and one without endpoints.
func example(t *testing.T) *nft.Table {
	t.Helper()
	s := modeltest.Snapshot(modeltest.Config(),
		modeltest.OurNode(),
		modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16"),
		modeltest.NewService("ns1/web").On("172.30.0.41").External("192.168.99.11").
			TCP("http", 80).NodePort(30001).UDP("dns", 53),
		modeltest.NewService("ns1/empty").On("172.30.0.42").TCP("", 80).UDP("udp", 80),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 5353).
			Local("10.0.0.2", modeltest.NodeIP4).Ready("10.0.0.3"))
	return compile.Options{}.Compile(nil, s.Family(model.IPv4)).Table()
}

func simulator(t *testing.T, r *nft.Table) *nftsim.Simulator {
	t.Helper()
	s, err := nftsim.New(r, netip.MustParseAddr(modeltest.NodeIP4))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// connection makes a connection, which a process on the node makes if the source is the node's.
func connection(source, dest string, p model.Protocol) model.Connection {
	return model.Connection{
		Source: netip.MustParseAddr(source), Node: source == modeltest.NodeIP4,
		Dest: netip.MustParseAddrPort(dest), Protocol: p,
	}
}

func TestRun(t *testing.T) {
	type arrivals = map[string]modeltest.Arrival
	third := 1.0 / 3
	for _, tt := range []struct {
		name       string
		connection model.Connection
		want       model.Verdict
		reset      bool
		to         arrivals
	}{
		{
			"a pod to a cluster IP keeps its source, unless it meets itself",
			connection("10.0.0.2", "172.30.0.41:80", model.TCP), model.Forwarded, false,
			arrivals{"10.0.0.2:8080": {Share: third, Masquerade: true}, "10.0.0.3:8080": {Share: third}, "192.168.0.2:8080": {Share: third}},
		},
		{
			// An endpoint on the node's own address is met in input, where nothing can
			// be masqueraded.
			"from outside to an external IP",
			connection("203.0.113.9", "192.168.99.11:80", model.TCP), model.Forwarded, false,
			arrivals{"10.0.0.2:8080": {Share: third, Masquerade: true}, "10.0.0.3:8080": {Share: third, Masquerade: true}, "192.168.0.2:8080": {Share: third}},
		},
		{
			"what the node itself sends passes postrouting on any way",
			connection("192.168.0.2", "192.168.0.2:30001", model.TCP), model.Forwarded, false,
			arrivals{"10.0.0.2:8080": {Share: third, Masquerade: true}, "10.0.0.3:8080": {Share: third, Masquerade: true}, "192.168.0.2:8080": {Share: third, Masquerade: true}},
		},
		{
			"no endpoint over UDP: an ICMP error",
			connection("10.0.0.9", "172.30.0.42:80", model.UDP), model.Rejected, false, nil,
		},
		{
			"another port of a cluster IP is refused",
			connection("192.168.0.2", "172.30.0.41:81", model.TCP), model.Rejected, true, nil,
		},
		{
			"an unknown cluster IP is dropped",
			connection("10.0.0.9", "172.30.0.43:80", model.TCP), model.Dropped, false, nil,
		},
		{
			"an endpoint asked directly is left alone, even by itself",
			connection("10.0.0.2", "10.0.0.2:8080", model.TCP), model.Forwarded, false,
			arrivals{"10.0.0.2:8080": {Share: 1}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := simulator(t, example(t)).Run(tt.connection)
			if err != nil {
				t.Fatal(err)
			}
			var to arrivals
			for addr, a := range got.To {
				if to == nil {
					to = arrivals{}
				}
				to[addr.String()] = a
			}
			want := modeltest.Outcome{Verdict: tt.want, TCPReset: tt.reset}
			if diff := cmp.Diff(want, modeltest.Outcome{Verdict: got.Verdict, TCPReset: got.TCPReset}); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.to, to, sameShare); diff != "" {
				t.Errorf("to (-want +got):\n%s", diff)
			}
			if t.Failed() {
				t.Logf("rules met:\n%s", strings.Join(got.Trace, "\n"))
			}
		})
	}
}

// While a batch lands, a packet can find the old number of slots and the new slots.
func TestAMissingSlotIsNotALostPacket(t *testing.T) {
	r := example(t)
	for key := range r.Elements[nft.Endpoints] {
		if strings.HasSuffix(key, string(nft.AppendSlot(nil, 2))) {
			delete(r.Elements[nft.Endpoints], key)
		}
	}
	s, err := nftsim.New(r, netip.MustParseAddr(modeltest.NodeIP4))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Run(connection("10.0.0.9", "172.30.0.41:53", model.UDP))
	if err != nil {
		t.Fatal(err)
	}
	// Half of them draw again, one in three of these once more, and get slot 0.
	want := map[netip.AddrPort]modeltest.Arrival{
		netip.MustParseAddrPort("10.0.0.2:5353"): {Share: 1./4 + 1./2/3 + 1./2/3},
		netip.MustParseAddrPort("10.0.0.3:5353"): {Share: 1./4 + 1./2/3},
	}
	if diff := cmp.Diff(want, got.To, sameShare, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("to (-want +got):\n%s", diff)
	}
}

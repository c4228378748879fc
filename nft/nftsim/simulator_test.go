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

// While a batch lands, a packet can find the old number of slots and the new slots.
func TestAMissingSlotIsNotALostPacket(t *testing.T) {
	snapshot := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(),
		modeltest.NewService("ns1/web").On("172.30.0.41").UDP("dns", 53),
		modeltest.NewSlice("ns1/web-1", "web").UDP("dns", 5353).Local("10.0.0.2", modeltest.NodeIP4).Ready("10.0.0.3"))
	r := compile.Options{}.Compile(nil, snapshot.Family(model.IPv4)).Table()
	for key := range r.Elements[nft.Endpoints] {
		if strings.HasSuffix(key, string(nft.AppendSlot(nil, 2))) {
			delete(r.Elements[nft.Endpoints], key)
		}
	}
	s, err := nftsim.New(r, netip.MustParseAddr(modeltest.NodeIP4))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Run(model.Connection{
		Source: netip.MustParseAddr("10.0.0.9"), Dest: netip.MustParseAddrPort("172.30.0.41:53"), Protocol: model.UDP,
	})
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

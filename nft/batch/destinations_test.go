package batch_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/compile"
)

func TestDestinationsOfATable(t *testing.T) {
	s := dualStack().Snapshot()
	at, compare := netip.MustParseAddrPort, cmp.Options{
		cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.SortSlices(func(a, b netip.AddrPort) bool { return a.Compare(b) < 0 }),
	}
	vip := func(p model.Protocol, a string) model.VIP {
		return model.VIP{Addr: at(a).Addr(), Protocol: p, Port: at(a).Port()}
	}
	pods := func(port string) []netip.AddrPort {
		return []netip.AddrPort{at("10.0.0.2:" + port), at("10.0.0.3:" + port)}
	}
	four := tableOf(t, compile.Options{}.Compile(nil, s.Family(model.IPv4)))
	equal(t, "UDP", map[model.VIP][]netip.AddrPort{
		vip(model.UDP, "172.30.0.41:53"): pods("5353"), vip(model.UDP, "192.168.98.11:53"): pods("5353"),
		vip(model.UDP, "192.168.99.11:53"): pods("5353"),
	}, four.Destinations(model.UDP), compare)
	equal(t, "TCP", map[model.VIP][]netip.AddrPort{
		vip(model.TCP, "172.30.0.41:80"): pods("8080"), vip(model.TCP, "192.168.98.11:80"): pods("8080"),
		vip(model.TCP, "192.168.99.11:80"): pods("8080"), vip(model.TCP, "192.168.0.2:30001"): pods("8080"),
		vip(model.TCP, "172.30.0.42:80"): nil,
	}, four.Destinations(model.TCP), compare)
	six := tableOf(t, compile.Options{}.Compile(nil, s.Family(model.IPv6))).Destinations(model.TCP)
	equal(t, "IPv6", []netip.AddrPort{at("[fd00:10::2]:8080")}, six[vip(model.TCP, "[fd00:192:168::2]:30001")], compare)
}

// Clients of a service port with session affinity may be remembered with endpoints that the table does not name.
func TestDestinationsWithAffinity(t *testing.T) {
	at := netip.MustParseAddrPort
	s := modeltest.Snapshot(
		modeltest.Config(), modeltest.OurNode(),
		modeltest.NewService("ns1/dns").Typed("NodePort").On("172.30.0.41").Sticky(60).UDP("dns", 53).NodePort(30053).TCP("tcp", 53),
		modeltest.NewService("ns1/ntp").On("172.30.0.42").UDP("ntp", 123),
		modeltest.NewSlice("ns1/dns-1", "dns").UDP("dns", 5353).TCP("tcp", 5353).Ready("10.0.0.9"),
		modeltest.NewSlice("ns1/ntp-1", "ntp").UDP("ntp", 123).Ready("10.0.0.9"),
	).Family(model.IPv4)
	vip := func(a string) model.VIP {
		return model.VIP{Addr: at(a).Addr(), Protocol: model.UDP, Port: at(a).Port()}
	}
	equal(t, "UDP", map[model.VIP][]netip.AddrPort{
		vip("172.30.0.41:53"): {{}, at("10.0.0.9:5353")}, vip(modeltest.NodeIP4 + ":30053"): {{}, at("10.0.0.9:5353")},
		vip("172.30.0.42:123"): {at("10.0.0.9:123")},
	}, tableOf(t, compile.Options{}.Compile(nil, s)).Destinations(model.UDP), cmpopts.EquateComparable(netip.AddrPort{}))
}

package ipvssim_test

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
)

func connection(dest string) model.Connection {
	return model.Connection{Source: netip.MustParseAddr("203.0.113.7"), Dest: netip.MustParseAddrPort(dest), Protocol: model.TCP}
}

// Without rules there is IPVS alone.
func TestVirtualServers(t *testing.T) {
	vip, pods := netip.MustParseAddr("172.30.0.41"), []netip.AddrPort{
		netip.MustParseAddrPort("10.0.0.2:8080"), netip.MustParseAddrPort("10.0.0.3:8080"), netip.MustParseAddrPort("10.0.0.4:8080"),
	}
	c := ipvs.NewContent(model.IPv4)
	c.Servers[ipvs.Key{Addr: vip, Protocol: model.TCP, Port: 80}] = ipvs.Server{
		Scheduler: "rr", Real: map[netip.AddrPort]int{pods[0]: 1, pods[1]: 1, pods[2]: 0},
	}
	sim, err := ipvssim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	run := func(c model.Connection) ipvssim.Outcome {
		o, err := sim.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if o := run(connection("172.30.0.41:80")); o.Server != (ipvs.Key{}) {
		t.Error("an address that is not the node's has reached IPVS")
	}
	c.Addrs[vip] = true
	if o := run(connection("172.30.0.41:80")); len(o.To) != 2 || o.To[pods[0]].Share != 0.5 || o.To[pods[1]].Share != 0.5 {
		t.Errorf("want both that have a weight, got %v", o.To)
	}
	if o := run(connection("172.30.0.41:81")); o.Server != (ipvs.Key{}) || o.Verdict != model.Forwarded {
		t.Errorf("want the node itself, got %+v", o)
	}
	clear(c.Servers[ipvs.Key{Addr: vip, Protocol: model.TCP, Port: 80}].Real)
	if o := run(connection("172.30.0.41:80")); o.Verdict != model.Rejected || o.TCPReset {
		t.Errorf("want an ICMP error, got %+v", o)
	}
	if _, err := sim.Run(connection("[fd00::1]:80")); err == nil {
		t.Error("want an error for another family")
	}
}

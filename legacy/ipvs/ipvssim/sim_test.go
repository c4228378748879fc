package ipvssim_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
)

// What no kernel would take is an error.
func TestRulesThatAreNotSound(t *testing.T) {
	for _, tt := range []struct {
		name  string
		table string
		rule  ipvs.Rule
		want  string
	}{
		{"no such set", "mangle", ipvs.Rule{Matches: []ipvs.Match{ipvs.InSet{Set: ipvs.Addrs, Fields: "dst"}}, Target: ipvs.Drop{}}, "no set"},
		{"no such chain", "mangle", ipvs.Rule{Target: ipvs.Jump{Chain: "X"}}, "no chain X"},
		{"drop in nat", "nat", ipvs.Rule{Target: ipvs.Drop{}}, "nothing is dropped"},
		{"refuse in mangle", "mangle", ipvs.Rule{Target: ipvs.Reject{}}, "but in filter"},
		{"masquerade in mangle", "mangle", ipvs.Rule{Target: ipvs.Masquerading{}}, "but in nat"},
		{"marks of a set without", "mangle", ipvs.Rule{Target: ipvs.MapMark{Set: ipvs.Services, Fields: "dst,dst"}}, "no marks"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := ipvs.NewContent(model.IPv4)
			c.Companion = &ipvs.Companion{Tables: []ipvs.Table{{Name: tt.table, Chains: []ipvs.Chain{{Name: "C", Rules: []ipvs.Rule{tt.rule}}}}}}
			if _, err := ipvssim.New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("want an error with %q, got %v", tt.want, err)
			}
		})
	}
}

func connection(dest string) model.Connection {
	return model.Connection{Source: netip.MustParseAddr("203.0.113.7"), Dest: netip.MustParseAddrPort(dest), Protocol: model.TCP}
}

// Without a companion there is IPVS alone.
func TestVirtualServers(t *testing.T) {
	vip, pods := netip.MustParseAddr("172.30.0.41"), []netip.AddrPort{
		netip.MustParseAddrPort("10.0.0.2:8080"), netip.MustParseAddrPort("10.0.0.3:8080"), netip.MustParseAddrPort("10.0.0.4:8080"),
	}
	c := ipvs.NewContent(model.IPv4)
	c.Servers[ipvs.Key{Addr: vip, Protocol: model.TCP, Port: 80}] = ipvs.Server{
		Scheduler: "rr", Real: map[netip.AddrPort]int{pods[0]: 1, pods[1]: 1, pods[2]: 0},
	}
	c.Servers[ipvs.Key{Addr: netip.IPv4Unspecified(), Mark: 5}] = ipvs.Server{
		Scheduler: "rr", Real: map[netip.AddrPort]int{pods[2]: 1},
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
	o, err := sim.RunPacket(ipvssim.Packet{Connection: connection("172.30.0.41:80"), Mark: 5})
	if err != nil || len(o.To) != 1 || o.To[pods[2]].Share != 1 {
		t.Errorf("want the one of the mark, got %v, %v", o.To, err)
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

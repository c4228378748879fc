package conntrack

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// sameFlow compares flows without what a message alone has.
var sameFlow = cmp.Options{cmpopts.IgnoreUnexported(Flow{}), cmpopts.EquateComparable(netip.AddrPort{})}

// tracked are messages of a kernel's: a masqueraded flow of each family.
func tracked(t testing.TB) map[string][]byte {
	t.Helper()
	messages := map[string][]byte{}
	for _, text := range []string{"udp 172.30.0.10:53 from 10.0.0.2:8053", "sctp [fd00:172:30::10]:53 from [fd00:10::2]:8053"} {
		f := parse(t, text)
		m := f.creation(t)
		messages[text] = m.Data
	}
	return messages
}

func TestFlowsAreRead(t *testing.T) {
	for text, b := range tracked(t) {
		want := parse(t, text)
		want.Translated = false // what asks for a flow does not say so, and names the reply as it would be
		want.ReplySource = want.Dest
		got, err := parseFlow(b)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		testaid.Equal(t, text, want, got, sameFlow)
		if n := testing.AllocsPerRun(100, func() { _, _ = parseFlow(b) }); n > 0 {
			t.Errorf("%s: %v allocations, want none", text, n)
		}
		for _, short := range [][]byte{nil, b[:nl.SizeofNfgenmsg-1], b[:nl.SizeofNfgenmsg+1], b[:len(b)/2]} {
			if f, err := parseFlow(short); err == nil {
				t.Errorf("%s: %d of %d bytes are read as %+v", text, len(short), len(b), f)
			}
		}
	}
}

// A flow is in another zone if either direction is.
func TestTheZoneOfOneDirectionIsRead(t *testing.T) {
	for _, zones := range [][2]uint16{{0, 0}, {7, 0}, {0, 7}} {
		f := parse(t, "udp 172.30.0.10:53")
		ae := netlink.NewAttributeEncoder()
		encodeTuple(ae, nl.CTA_TUPLE_ORIG, f.Protocol, f.Source, f.Dest, zones[0])
		encodeTuple(ae, nl.CTA_TUPLE_REPLY, f.Protocol, f.Dest, f.Source, zones[1])
		m, err := message(0, 0, model.IPv4, ae)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseFlow(m.Data); err != nil || got.Zone != (zones != [2]uint16{}) {
			t.Errorf("zones %v: in another zone %v, %v", zones, got.Zone, err)
		}
	}
}

// FuzzFlow shows that nothing that a kernel could say makes parseFlow panic.
func FuzzFlow(f *testing.F) {
	for _, b := range tracked(f) {
		f.Add(b)
	}
	f.Add([]byte{2, 0, 0, 0, 4, 0, 1, 0x80})
	f.Add([]byte{2, 0, 0, 0, 3, 0, 1, 0x80})
	c, p := newCluster(append(dnsSlices(nil, 2), dns())...), &pass{whole: true}
	c.apply(p.now)
	f.Fuzz(func(_ *testing.T, b []byte) {
		// What was read may be nonsense, but can be judged.
		if flow, err := parseFlow(b); err == nil {
			_ = c.families[model.IPv4].stale(p, &flow)
		}
	})
}

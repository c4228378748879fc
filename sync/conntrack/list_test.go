package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

// The kernel lists what a filter selects, and nothing else.
func TestTheKernelFilters(t *testing.T) {
	n := newNamespace(t)
	texts := []string{
		"udp 172.30.0.10:53 from 10.0.0.2:8053",
		"udp 172.30.0.10:53 from 10.0.0.2:8054",
		"udp 172.30.0.10:53 from 10.0.0.3:8053",
		"udp 172.30.0.11:53 from 10.0.0.2:8053",
		"udp 172.30.0.10:54",
		"tcp 172.30.0.10:53 from 10.0.0.2:8053",
		"sctp 172.30.0.10:53 from 10.0.0.2:8053",
		"udp [fd00:172:30::10]:53 from [fd00:10::2]:8053",
		"udp [fd00:172:30::10]:53 from [fd00:10::3]:8053",
	}
	source := func(i int) netip.AddrPort {
		f := parse(t, texts[i])
		return netip.AddrPortFrom(f.Source.Addr(), uint16(41000+i))
	}
	n.create(t, len(texts), func(i int) Flow {
		f := parse(t, texts[i])
		f.Source = source(i)
		f.ReplyDest = f.Source
		return f
	})
	at := netip.MustParseAddrPort
	for name, q := range map[string]Filter{
		"all":           {},
		"a protocol":    {Protocol: model.UDP},
		"an endpoint":   {Protocol: model.UDP, Endpoint: at("10.0.0.2:8053")},
		"of SCTP":       {Protocol: model.SCTP, Endpoint: at("10.0.0.2:8053")},
		"of IPv6":       {Protocol: model.UDP, Endpoint: at("[fd00:10::2]:8053")},
		"a frontend":    {Protocol: model.UDP, Dest: at("172.30.0.10:53")},
		"of IPv6, too":  {Protocol: model.UDP, Dest: at("[fd00:172:30::10]:53")},
		"a port":        {Protocol: model.UDP, Dest: at("0.0.0.0:53")},
		"a port of TCP": {Protocol: model.TCP, Dest: at("0.0.0.0:53")},
		"both":          {Protocol: model.UDP, Dest: at("172.30.0.10:53"), Endpoint: at("10.0.0.3:8053")},
		"nothing":       {Protocol: model.UDP, Endpoint: at("10.0.0.9:8053")},
	} {
		var want, got []netip.AddrPort
		family := model.IPv4
		if q.Dest.Addr().Is6() || q.Endpoint.Addr().Is6() {
			family = model.IPv6
		}
		for i, text := range texts {
			f := parse(t, text)
			if q.selects(&f) && model.FamilyOf(f.Dest.Addr()) == family {
				want = append(want, source(i))
			}
		}
		if err := n.open(t).List(t.Context(), family, q, func(f *Flow) { got = append(got, f.Source) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		slices.SortFunc(got, netip.AddrPort.Compare)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

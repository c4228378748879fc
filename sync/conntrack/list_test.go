package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

func TestListTellsOfTranslatedFlows(t *testing.T) {
	n := newNamespace(t)
	zone := parse(t, "udp 172.30.0.10:53 from 10.0.0.9:8053")
	zone.zone = true
	flows := []flow{zone}
	for _, text := range []string{
		"udp 172.30.0.10:53 from 10.0.0.2:8053",
		"udp 172.30.0.10:53 from 10.0.0.3:8053",
		"tcp 172.30.0.10:80 from 10.0.0.2:8080",
		"tcp 172.30.0.10:81 from 10.0.0.2:8081",
		"udp 172.30.0.10:54",
		"udp [fd00:172:30::10]:53 from [fd00:10::2]:8053",
	} {
		flows = append(flows, parse(t, text))
	}
	n.create(t, len(flows), func(i int) flow {
		flows[i].source = netip.AddrPortFrom(flows[i].source.Addr(), uint16(41000+i))
		flows[i].replyDest = flows[i].source
		return flows[i]
	})
	l := Lister{NetNS: n.fd()}
	list := func(f model.Family, ports ...model.VIP) []string {
		t.Helper()
		found := []string{}
		if err := l.List(t.Context(), f, ports, func(f Entry) {
			found = append(found, fmt.Sprintf("%v %v %v", f.Protocol, f.Dest, f.ReplySource))
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		return found
	}
	dns, web := model.VIP{Protocol: model.UDP, Port: 53}, model.VIP{Protocol: model.TCP, Port: 80}
	for _, tt := range []struct {
		name  string
		f     model.Family
		ports []model.VIP
		want  []string
	}{
		{"one port", model.IPv4, []model.VIP{dns}, []string{"udp 172.30.0.10:53 10.0.0.2:8053", "udp 172.30.0.10:53 10.0.0.3:8053"}},
		{"IPv6", model.IPv6, []model.VIP{dns, web}, []string{"udp [fd00:172:30::10]:53 [fd00:10::2]:8053"}},
		{"two ports", model.IPv4, []model.VIP{dns, web}, []string{
			"tcp 172.30.0.10:80 10.0.0.2:8080", "udp 172.30.0.10:53 10.0.0.2:8053", "udp 172.30.0.10:53 10.0.0.3:8053",
		}},
		{"no port", model.IPv4, nil, []string{}},
	} {
		if diff := cmp.Diff(tt.want, list(tt.f, tt.ports...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Where there are many connections, a pass for UDP does not list them.
func TestAPassForDatagramsListsThemAlone(t *testing.T) {
	n := newNamespace(t)
	n.fill(t, "tcp 172.30.0.10:80 from 10.0.0.3:8080", 5)
	n.fill(t, datagrams, 3)
	p := passOf(model.UDP, "172.30.0.10", "10.0.0.3:8053")
	if seen, _, err := n.open(t).sweepFor(model.IPv4, p); seen != 3 || err != nil {
		t.Errorf("%d flows listed, want 3; %v", seen, err)
	}
	p.streams = true
	if seen, _, err := n.open(t).sweepFor(model.IPv4, p); seen != 8 || err != nil {
		t.Errorf("with connections, %d flows listed, want 8; %v", seen, err)
	}
}

func TestFind(t *testing.T) {
	n := newNamespace(t)
	want := parse(t, "tcp 172.30.0.10:80 from 10.0.0.2:8080")
	n.create(t, 1, func(int) flow { return want })
	l := Lister{NetNS: n.fd()}
	e, found, err := l.Find(t.Context(), model.TCP, want.source, want.dest)
	if err != nil || !found || e.ReplySource != want.replySource || !e.Answered {
		t.Errorf("found %v: %+v, %v", found, e, err)
	}
	other := netip.AddrPortFrom(want.dest.Addr(), 81)
	if _, found, err = l.Find(t.Context(), model.TCP, want.source, other); found || err != nil {
		t.Errorf("another one is found: %v, %v", found, err)
	}
}

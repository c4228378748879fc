package host

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Lines as Linux 6.1 prints them.
func TestTemplatesOfVirtualServers(t *testing.T) {
	const text = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP CB007109 C350 C0A8620A 0050 0A000002 1F90 ESTABLISHED     899
TCP CB007109 0000 C0A8620A 0050 0A000002 1F90 NONE          10798
UDP CB007109 0000 C0A8620A 0050 0A000003 1F90 NONE             17
TCP CB007107 0000 C0A8620A 0051 0A000004 1F90 ASSURED        1798
TCP [fd00:0000:0000:0000:0000:0000:0000:0009] 0000 [fd00:0000:0000:0000:0000:0000:0000:000a] 0050 [fd00:0010:0000:0000:0000:0000:0000:0002] 1F90 NONE 60
TCP 2001:0db8:0000:0000:0000:0000:0000:0009 0000 fd00:0000:0000:0000:0000:0000:0000:000a 0050 fd00:0010:0000:0000:0000:0000:0000:0003 1F90 NONE 61
`
	for _, tt := range []struct {
		vip, client, want string
		left              time.Duration
	}{
		{"192.168.98.10:80", "203.0.113.9", "10.0.0.2:8080", 10798 * time.Second},
		{"192.168.98.10:81", "203.0.113.7", "10.0.0.4:8080", 1798 * time.Second},
		{"192.168.98.10:80", "203.0.113.7", "", 0},
		{"192.168.98.10:8080", "203.0.113.9", "", 0},
		{"[fd00::a]:80", "fd00::9", "[fd00:10::2]:8080", time.Minute},
		{"[fd00::a]:80", "2001:db8::9", "[fd00:10::3]:8080", 61 * time.Second},
	} {
		at := netip.MustParseAddrPort(tt.vip)
		to, left, ok, err := findTemplate(strings.NewReader(text), model.VIP{Addr: at.Addr(), Protocol: model.TCP, Port: at.Port()}, netip.MustParseAddr(tt.client))
		if err != nil || ok != (tt.want != "") || ok && to.String() != tt.want || left != tt.left {
			t.Errorf("%s to %s: want %q for %v, got %v for %v, %v, %v", tt.client, tt.vip, tt.want, tt.left, to, left, ok, err)
		}
	}
}

func TestLinesOfRecentLists(t *testing.T) {
	for line, want := range map[string]string{
		"src=10.0.0.1 ttl: 63 last_seen: 4295892003 oldest_pkt: 2 4295892001, 4295892003":                    "10.0.0.1",
		"src=fd00:0000:0000:0000:0000:0000:0000:0009 ttl: 63 last_seen: 4295892003 oldest_pkt: 1 4295892003": "fd00::9",
		"":                   "",
		"src=10.0.0.1":       "",
		"a b c last_seen: 1": "",
	} {
		a, seen, ok := parseRecent(line)
		if ok != (want != "") || ok && (a.String() != want || seen != 4295892003) {
			t.Errorf("%q: want %q, got %v, %d, %v", line, want, a, seen, ok)
		}
	}
}

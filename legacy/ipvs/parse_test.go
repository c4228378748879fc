package ipvs_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

const servers = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  AC1E002A:0050 rr persistent 2700000 FFFFFFFF
  -> 0A000002:1F90      Masq    1      0          0         
  -> 0A000003:1F90      Masq    0      5          2         
  -> 0A000004:1F90      Masq    0      0          2         
UDP  [fd00:0172:0030:0000:0000:0000:0000:002a]:0035 mh 
  -> [fd00:0010:0000:0000:0000:0000:0000:0004]:14e9      Masq    1      0          0         
FWM  00000007 rr 
  -> 0A000009:1F90      Route   1      0          0         
TCP  C0000201:0050 rr ops 
  -> 0A000009:1F90      Route   1      0          0         
`

func TestServersAreRead(t *testing.T) {
	at := netip.MustParseAddrPort
	key := func(p model.Protocol, s string) ipvs.Key {
		a := at(s)
		return ipvs.Key{Addr: a.Addr(), Protocol: p, Port: a.Port()}
	}
	web, dns := key(model.TCP, "172.30.0.42:80"), key(model.UDP, "[fd00:172:30::2a]:53")
	for f, want := range map[model.Family]map[ipvs.Key]map[netip.AddrPort]ipvs.Real{
		model.IPv4: {
			web:                            {at("10.0.0.2:8080"): {1, true}, at("10.0.0.3:8080"): {0, false}, at("10.0.0.4:8080"): {0, false}},
			key(model.TCP, "192.0.2.1:80"): {at("10.0.0.9:8080"): {-1, true}},
		},
		model.IPv6: {dns: {at("[fd00:10::4]:5353"): {1, true}}},
	} {
		got, err := ipvs.ParseReals(strings.NewReader(servers), f)
		if err != nil {
			t.Fatal(err)
		}
		testaid.Equal(t, f.String(), want, got, compareContents...)
	}
}

// FuzzServers reads any text.
func FuzzServers(f *testing.F) {
	for _, text := range []string{servers, "TCP  AC1E002A rr\n", "TCP  AC1E:0050 rr\n", "XYZ  AC1E002A:0050 rr\n", "TCP  [::1]:50 rr persistent x\n", "  -> :\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ipvs.ParseReals(strings.NewReader(text), model.IPv4)
		if err == nil && len(got) > strings.Count(text, "\n")+1 {
			t.Errorf("%d servers in %q", len(got), text)
		}
	})
}

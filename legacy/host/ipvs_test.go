package host

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

var compareAddrs = []cmp.Option{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b ipvs.Entry) bool { return a == b }),
}

func TestParseSets(t *testing.T) {
	const text = `create VMAPD-SOURCES hash:ip,port,net family inet hashsize 1024 maxelem 2097152 bucketsize 12 initval 0x6f9a
add VMAPD-SOURCES 192.168.98.12,tcp:80,203.0.113.0/25
add VMAPD-SOURCES 192.168.98.12,sctp:99,203.0.113.7
create VMAPD-DROP hash:ip,port family inet hashsize 1024 maxelem 65536
add VMAPD-DROP 192.168.98.12,udp:53
create VMAPD-HAIRPIN hash:net,net family inet hashsize 1024 maxelem 2097152
add VMAPD-HAIRPIN 10.0.0.2,10.0.0.2
create VMAPD6-ADDRS hash:ip family inet6 hashsize 1024 maxelem 2097152
add VMAPD6-ADDRS fd00::1
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 30001
`
	addr := netip.MustParseAddr
	want := map[ipvs.SetName]map[ipvs.Entry]bool{
		ipvs.Sources: {
			{Addr: addr("192.168.98.12"), Protocol: model.TCP, Port: 80, Net: netip.MustParsePrefix("203.0.113.0/25")}:  true,
			{Addr: addr("192.168.98.12"), Protocol: model.SCTP, Port: 99, Net: netip.MustParsePrefix("203.0.113.7/32")}: true,
		},
		ipvs.Discard: {{Addr: addr("192.168.98.12"), Protocol: model.UDP, Port: 53}: true},
		ipvs.Hairpin: {{Addr: addr("10.0.0.2"), Net: netip.MustParsePrefix("10.0.0.2/32")}: true},
	}
	got, err := parseSets(strings.NewReader(text), model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, compareAddrs...); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, text := range map[string]string{
		"no address": "create VMAPD-ADDRS hash:ip family inet maxelem 65536\nadd VMAPD-ADDRS x\n",
		"no port":    "create VMAPD-DROP hash:ip,port family inet maxelem 65536\nadd VMAPD-DROP 10.0.0.1\n",
		"a protocol": "create VMAPD-DROP hash:ip,port family inet maxelem 65536\nadd VMAPD-DROP 10.0.0.1,icmp:1\n",
		"an option":  "create VMAPD-ADDRS hash:ip family inet maxelem 65536\nadd VMAPD-ADDRS 10.0.0.1 timeout 3\n",
		"a command":  "flush VMAPD-ADDRS now\n",
		"not a line": "?\n",
	} {
		if got, err := parseSets(strings.NewReader(text), model.IPv4); err == nil {
			t.Errorf("%s: got %v, and no error", name, got)
		}
	}
}

func TestKernelVersions(t *testing.T) {
	for _, c := range []struct {
		release, than string
		less          bool
	}{
		{"6.1.0-56-cloud-amd64", "5.9", false},
		{"5.8.18", "5.9", true},
		{"5.9.0", "5.9", false},
		{"5.10.1", "5.9", false},
		{"4.0-rc1", "4.1", true},
		{"4.18.0-553.el8_10.x86_64", "4.1", false},
	} {
		if got := older(c.release, c.than); got != c.less {
			t.Errorf("%s is less than %s: %v", c.release, c.than, got)
		}
	}
}

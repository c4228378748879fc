package tablesim

import (
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// Tables of kube-proxy, read from the kernel, do with packets what their listings say.
func TestTablesOfOthersAreReadAsNFTListsThem(t *testing.T) {
	files, err := filepath.Glob("../../../../../testdata/kube-proxy/*/*.nft")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, "../../../../../testdata/kube-proxy/"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			f := model.IPv4
			if strings.HasSuffix(file, ".ipv6.nft") {
				f = model.IPv6
			}
			sameTables(t, f, "kube-proxy", string(text))
		})
	}
	t.Run("other expressions", func(t *testing.T) {
		sameTables(t, model.IPv4, "kube-proxy", `table ip kube-proxy {
	set ranges {
		type ipv4_addr
		flags interval
		elements = { 10.0.0.0/9, 203.0.113.128/25, 255.255.255.0/24 }
	}
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 172.30.0.1 . tcp . 80 : goto one, 172.30.0.1 . udp . 53 : goto two, 172.30.0.2 . tcp . 80 : drop }
	}
	chain pre {
		type nat hook prerouting priority dstnat; policy accept;
		iifname "eth0" ip saddr 198.51.100.0-198.51.100.9 meta l4proto tcp counter dnat to 10.0.0.9:9
		iifname "cali*" meta mark set 0x00000007
		ip saddr != @ranges meta mark set meta mark | 0x00004000
		ip daddr . meta l4proto . th dport vmap @service-ips
	}
	chain out {
		type nat hook output priority -100; policy accept;
		ip daddr . meta l4proto . th dport vmap @service-ips
	}
	chain filtered {
		type filter hook forward priority 1; policy drop;
		ct state invalid drop
		ip saddr 10.128.0.0/9 reject with icmp host-prohibited
		meta mark and 0x00004007 == 0x00000007 reject
		tcp dport 8000-8083 accept
		udp dport { 53, 5000-6000 } accept
		tcp dport 9 return
	}
	chain post {
		type nat hook postrouting priority srcnat; policy accept;
		meta mark & 0x00004000 == 0x00000000 return
		meta mark set meta mark ^ 0x00004000
		masquerade fully-random
	}
	chain one {
		ip saddr { 10.0.1.1, 10.0.1.2 } meta l4proto tcp dnat to 10.0.0.7:8080
		fib daddr type local drop
		numgen random mod 3 vmap { 0 : jump two, 1 : goto two }
		meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 8080, 1 : 10.0.0.2 . 8081 }
	}
	chain two {
		meta l4proto { tcp, udp } dnat to 10.0.0.3:8083
	}
}
`)
	})
}

// sameTables loads a listing, and compares packets through what the kernel has with packets through
// what nft lists, as text and in JSON.
func sameTables(t *testing.T, f model.Family, name, text string) {
	t.Helper()
	alone(t)
	if v := nft(t, "", "--version"); strings.Contains(v, " v0.") || strings.Contains(v, " v1.0.0 ") {
		t.Skip("this nft is older than kube-proxy needs")
	}
	nft(t, text, "-f", "-")
	family := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[f]
	want, err := Parse(nft(t, "", "list", "table", family, name), f, name)
	if err != nil || want == nil {
		t.Fatalf("parse the listing: %v, %v", want, err)
	}
	got, err := ReadTable(f, name)
	if err != nil || got == nil {
		t.Fatalf("want the table; got %v, %v", got, err)
	}
	inJSON, err := Parse(nft(t, "", "-j", "list", "table", family, name), f, name)
	if err != nil || inJSON == nil {
		t.Fatalf("parse the listing in JSON: %v, %v", inJSON, err)
	}
	tried := 0
	for _, c := range connectionsTo(want) {
		isLocal := func(a netip.Addr) bool { return a == netip.MustParseAddr("192.168.0.2") }
		a, errA := want.Run(isLocal, c)
		b, errB := got.Run(isLocal, c)
		if diff := cmp.Diff(a, b, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" || errA != nil || errB != nil {
			t.Errorf("%+v: (-listing +kernel):\n%s%v, %v", c, diff, errA, errB)
		}
		j, errJ := inJSON.Run(isLocal, c)
		if diff := cmp.Diff(a, j, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" || errJ != nil {
			t.Errorf("%+v: (-listing +JSON):\n%s%v", c, diff, errJ)
		}
		tried++
	}
	if tried < 50 {
		t.Errorf("want at least 50 connections; got %d", tried)
	}
}

// connectionsTo returns connections to all destinations of a table, and to some others.
func connectionsTo(table *Table) (list []model.Connection) {
	sources := []string{"10.0.0.2", "10.0.1.1", "10.0.1.4", "10.200.0.1", "192.168.0.2", "203.0.113.9", "203.0.113.200", "198.51.100.5", "198.51.100.10", "255.255.255.1"}
	node := "192.168.0.2"
	if table.Family == model.IPv6 {
		sources = []string{"fd00:10::2", "fd00:10:0:1::2", "fd00:192:168::2", "2001:db8::1"}
		node = "fd00:192:168::2"
	}
	var dests []model.VIP
	for _, name := range []string{"service-ips", "no-endpoint-services", "service-nodeports", "no-endpoint-nodeports"} {
		if table.Sets[name] == nil {
			continue
		}
		for _, e := range table.Sets[name].Elements {
			v := model.VIP{Addr: netip.MustParseAddr(node)}
			if len(e.From) == 3 {
				v.Addr, _ = netip.AddrFromSlice(e.From[0])
			}
			v.Protocol = model.Protocol(e.From[len(e.From)-2][0])
			v.Port = binary.BigEndian.Uint16(e.From[len(e.From)-1])
			dests = append(dests, v, model.VIP{Addr: v.Addr, Protocol: model.SCTP, Port: v.Port}, model.VIP{Addr: v.Addr.Next(), Protocol: v.Protocol, Port: v.Port})
		}
	}
	for _, s := range sources {
		for _, v := range dests {
			for _, iface := range []string{"eth0", "cali12"} {
				c := model.Connection{Source: netip.MustParseAddr(s), Node: s == node, Interface: iface, Dest: netip.AddrPortFrom(v.Addr, v.Port), Protocol: v.Protocol}
				list = append(list, c)
			}
		}
	}
	return list
}

func TestATableThatIsNotThereIsNone(t *testing.T) {
	alone(t)
	if table, err := ReadTable(model.IPv6, "kube-proxy"); table != nil || err != nil {
		t.Errorf("want no table; got %v, %v", table, err)
	}
}

// alone takes the test to a network namespace of its own.
func alone(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs the privilege to create a network namespace (run under unshare -rn): %v", err)
	}
}

// nft runs the program nft, and returns what it prints.
func nft(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v\n%s", args, err, out)
	}
	return string(out)
}

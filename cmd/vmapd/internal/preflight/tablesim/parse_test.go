package tablesim

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

const listing = `table inet other {
	chain input {
		type filter hook input priority filter; policy drop;
		tcp dport { 22, 80 } limit rate 5/second accept
	}
}
table ip services {
	comment "of another program"

	set pods { # in one line
		type ipv4_addr
		flags interval
		elements = { 10.0.0.0/16, 10.7.0.1-10.7.0.9 }
	}

	map destinations {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "with { and ; in it"
		elements = { 172.30.0.1 . tcp . 80 comment "ns/a:p" : goto service-A-ns/a/tcp/p,
			     172.30.0.2 . tcp . 80 : drop,
			     172.30.0.3 . udp . 53 counter packets 1 bytes 2 : goto no-answer }
	}

	set clients {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 3h
		elements = { 198.51.100.1 expires 1h59m30s }
	}

	chain pre {
		type nat hook prerouting priority dstnat - 10; policy accept;
		jump services
	}

	chain out {
		type nat hook output priority -100; policy accept;
		jump services
	}

	chain forward {
		type filter hook forward priority filter + 5; policy accept;
		ct state invalid drop
		ct state established,related accept
		iifname "cali*" meta mark & 0x00004000 != 0x00000000 drop
		fib saddr type local counter packets 0 bytes 0 accept
		ip daddr . meta l4proto . th dport vmap { 172.30.0.9 . tcp . 1-9 : goto no-answer }
	}

	chain post {
		type nat hook postrouting priority srcnat; policy accept;
		meta mark & 0x00004000 == 0x00000000 return
		meta mark set meta mark ^ 0x00004000
		masquerade fully-random
	}

	chain services {
		ip daddr . meta l4proto . th dport vmap @destinations
	}

	chain service-A-ns/a/tcp/p {
		ip saddr @clients goto endpoint-1
		ip saddr != @pods meta mark set meta mark | 0x00004000 comment "not from pods"
		numgen random mod 3 vmap { 0 : goto endpoint-1, 1 : goto endpoint-2 }
		meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.0.0.3 . 8080, 1 : 10.0.0.4 . 8080 }
	}

	chain endpoint-1 {
		update @clients { ip saddr }
		meta l4proto tcp dnat to 10.0.0.1:8080
	}

	chain endpoint-2 {
		tcp dport 80 dnat to 10.0.0.2:8080
	}

	chain no-answer {
		reject with icmp port-unreachable
	}
}
`

// runTo runs a connection on a node with the address 192.168.0.2, and returns the outcome in words.
func runTo(t *testing.T, table *Table, source, iface, dest string, p model.Protocol) string {
	t.Helper()
	node := netip.MustParseAddr("192.168.0.2")
	c := model.Connection{Source: netip.MustParseAddr(source), Interface: iface, Dest: netip.MustParseAddrPort(dest), Protocol: p}
	c.Node = c.Source == node
	o, err := table.Run(func(a netip.Addr) bool { return a == node }, c)
	if err != nil {
		t.Fatal(err)
	}
	return words(o)
}

func words(o modeltest.Outcome) string {
	if o.Verdict != model.Forwarded {
		return o.Verdict.String()
	}
	var list []string
	for _, to := range slices.SortedFunc(maps.Keys(o.To), netip.AddrPort.Compare) {
		w := to.String()
		if o.To[to].Masquerade {
			w += " masqueraded"
		}
		if o.To[to].Share < 0.9 {
			w += [...]string{"", " 1/6", " 1/3"}[int(o.To[to].Share*6+0.5)]
		}
		list = append(list, w)
	}
	return strings.Join(list, ", ")
}

func TestPacketsGoWhereTheListingSays(t *testing.T) {
	table, err := Parse(listing, model.IPv4, "services")
	if err != nil {
		t.Fatal(err)
	}
	all := "10.0.0.1:8080 1/3, 10.0.0.2:8080 1/3, 10.0.0.3:8080 1/6, 10.0.0.4:8080 1/6"
	for _, c := range []struct {
		name, source, iface, dest string
		protocol                  model.Protocol
		want                      string
	}{
		{"a pod", "10.0.9.9", "veth0", "172.30.0.1:80", model.TCP, all},
		{"a pod in a range", "10.7.0.9", "veth0", "172.30.0.1:80", model.TCP, all},
		{"outside", "10.7.0.10", "eth0", "172.30.0.1:80", model.TCP, strings.ReplaceAll(all, ":8080", ":8080 masqueraded")},
		{"a remembered client", "198.51.100.1", "eth0", "172.30.0.1:80", model.TCP, "10.0.0.1:8080"},
		{"the node", "192.168.0.2", "", "172.30.0.1:80", model.TCP, strings.ReplaceAll(all, ":8080", ":8080 masqueraded")},
		{"another protocol", "10.0.9.9", "veth0", "172.30.0.1:80", model.UDP, "172.30.0.1:80"},
		{"a verdict of the map", "10.0.9.9", "veth0", "172.30.0.2:80", model.TCP, "dropped"},
		{"behind a counter", "10.0.9.9", "veth0", "172.30.0.3:53", model.UDP, "rejected"},
		{"a range of ports", "10.0.9.9", "veth0", "172.30.0.9:7", model.TCP, "rejected"},
		{"beyond the range", "10.0.9.9", "veth0", "172.30.0.9:10", model.TCP, "172.30.0.9:10"},
		{"interface and mark", "10.7.0.10", "cali1", "172.30.0.1:80", model.TCP, "dropped"},
		{"interface without mark", "10.0.9.9", "cali1", "172.30.0.1:80", model.TCP, all},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := runTo(t, table, c.source, c.iface, c.dest, c.protocol); got != c.want {
				t.Errorf("want %s; got %s", c.want, got)
			}
		})
	}
}

func TestALoopIsAnError(t *testing.T) {
	for _, rule := range []string{"jump no-answer", "jump no-answer\n\t\tjump no-answer", "goto no-answer"} {
		table, err := Parse(strings.Replace(listing, "reject with icmp port-unreachable", rule, 1), model.IPv4, "services")
		if err != nil {
			t.Fatal(err)
		}
		c := model.Connection{Source: netip.MustParseAddr("10.0.9.9"), Dest: netip.MustParseAddrPort("172.30.0.3:53"), Protocol: model.UDP}
		if o, err := table.Run(func(netip.Addr) bool { return false }, c); err == nil {
			t.Errorf("%s: want an error; got %v", rule, o)
		}
	}
}

func TestChainsOfATable(t *testing.T) {
	table, err := Parse(listing, model.IPv4, "services")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for name, c := range table.Chains {
		if c.Hook != "" {
			got[name+" "+c.Hook] = c.Priority
		}
	}
	want := map[string]int{"pre prerouting": -110, "out output": -100, "forward forward": 5, "post postrouting": 100}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hooks and priorities (-want +got):\n%s", diff)
	}
}

func TestTheTableIsFoundByFamilyAndName(t *testing.T) {
	for _, f := range model.Families {
		table, err := Parse(listing, f, "services")
		if err != nil || (table != nil) != (f == model.IPv4) {
			t.Errorf("%v: got %v, %v", f, table, err)
		}
	}
}

func TestErrorsNameTheChainAndTheRule(t *testing.T) {
	for _, c := range []struct{ replace, by, want string }{
		{"masquerade fully-random", "frobnicate packets", `chain post: frobnicate packets: unknown word "frobnicate"`},
		{"goto no-answer }\n\t}", "goto nowhere }\n\t}", "no chain nowhere to go to"},
		{"@destinations", "@nothing", "no set nothing"},
		{"priority srcnat", "priority soon", `unknown priority "soon"`},
		{"172.30.0.2 . tcp . 80", "172.30.0.2 . tcp", `map destinations: ":" in place of "."`},
		{"numgen random mod 2", "numgen random mod two", `"two" is no number of 32 bits`},
		{"10.0.0.3 . 8080", "fd00::3", "dnat"},
		{"table ip services {", "table ip services", `in place of "{"`},
		{"table inet other", "tables inet other", `line 1: "tables": want a table, as nft lists it`},
	} {
		text := strings.Replace(listing, c.replace, c.by, 1)
		if text == listing {
			t.Errorf("%q is not in the listing", c.replace)
		}
		_, err := Parse(text, model.IPv4, "services")
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(c.want, "\n")) {
			t.Errorf("%s: want an error with %q; got %v", c.by, c.want, err)
		}
	}
}

const jsonListing = `{"nftables": [{"metainfo": {"version": "1.0.6"}},
{"table": {"family": "ip", "name": "services", "handle": 1}},
{"chain": {"family": "ip", "table": "services", "name": "pre", "type": "nat", "hook": "prerouting", "prio": -100, "policy": "accept"}},
{"chain": {"family": "ip", "table": "services", "name": "one"}},
{"map": {"family": "ip", "name": "destinations", "table": "services", "type": ["ipv4_addr", "inet_proto", "inet_service"], "map": "verdict",
  "elem": [[{"elem": {"val": {"concat": ["172.30.0.1", "tcp", 80]}, "comment": "ns/a: \"p\""}}, {"goto": {"target": "one"}}]]}},
{"rule": {"family": "ip", "table": "services", "chain": "pre", "expr": [
  {"match": {"op": "!=", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"set": [{"prefix": {"addr": "10.0.0.0", "len": 16}}, {"range": ["10.7.0.1", "10.7.0.9"]}]}}},
  {"vmap": {"key": {"concat": [{"payload": {"protocol": "ip", "field": "daddr"}}, {"meta": {"key": "l4proto"}}, {"payload": {"protocol": "th", "field": "dport"}}]}, "data": "@destinations"}}]}},
{"rule": {"family": "ip", "table": "services", "chain": "one", "expr": [{"counter": {"packets": 0, "bytes": 0}}, {"dnat": {"addr": "10.0.0.1", "port": 8080}}]}}
]}`

func TestListingsInJSON(t *testing.T) {
	table, err := Parse(jsonListing, model.IPv4, "services")
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{"198.51.100.1": "10.0.0.1:8080", "10.0.9.9": "172.30.0.1:80", "10.7.0.9": "172.30.0.1:80"} {
		if got := runTo(t, table, source, "eth0", "172.30.0.1:80", model.TCP); got != want {
			t.Errorf("from %s: want %s; got %s", source, want, got)
		}
	}
	for _, c := range []struct{ replace, by, want string }{
		{`{"counter": {"packets": 0, "bytes": 0}}`, `{"frobnicate": null}`, `rule one: unknown statement "frobnicate"`},
		{`"chain": "one", "expr"`, `"chain": "two", "expr"`, "its chain is missing"},
		{`{"meta": {"key": "l4proto"}}`, `{"osf": {"key": "name"}}`, `unknown expression "osf"`},
		{`"prio": -100`, `"prio": "soon"`, "read a listing in JSON"},
	} {
		text := strings.Replace(jsonListing, c.replace, c.by, 1)
		if _, err := Parse(text, model.IPv4, "services"); err == nil || !strings.Contains(err.Error(), c.want) || text == jsonListing {
			t.Errorf("%s: want an error with %q; got %v", c.by, c.want, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(listing)
	f.Add(jsonListing)
	f.Add("table ip services {\n chain a {\n")
	f.Fuzz(func(_ *testing.T, text string) {
		table, err := Parse(text, model.IPv4, "services")
		if err != nil || table == nil {
			return
		}
		// No table makes the simulator panic or run forever.
		_, _ = table.Run(func(netip.Addr) bool { return false }, model.Connection{
			Source: netip.MustParseAddr("10.0.0.9"), Dest: netip.MustParseAddrPort("172.30.0.1:80"), Protocol: model.TCP,
		})
	})
}

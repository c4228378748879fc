package iptsim_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

var (
	vip  = netip.MustParseAddrPort("172.30.0.41:80")
	pod  = netip.MustParseAddrPort("10.0.0.2:8080")
	node = netip.MustParseAddr("192.168.0.2")
)

var (
	fromOutside = model.Connection{
		Source: netip.MustParseAddr("203.0.113.7"), Interface: "eth0", Dest: vip, Protocol: model.TCP,
	}
	fromNode = model.Connection{Source: node, Node: true, Dest: vip, Protocol: model.TCP}
)

const dnat = "-p tcp -j DNAT --to-destination 10.0.0.2:8080"

func to(dest netip.AddrPort, a modeltest.Arrival) modeltest.Outcome {
	return modeltest.Outcome{Verdict: model.Forwarded, To: map[netip.AddrPort]modeltest.Arrival{dest: a}}
}

func TestRun(t *testing.T) {
	untouched := to(vip, modeltest.Arrival{Share: 1})
	reached := to(pod, modeltest.Arrival{Share: 1})
	dropped, rejected := modeltest.Outcome{Verdict: model.Dropped}, modeltest.Outcome{Verdict: model.Rejected}
	for _, tt := range []struct {
		name       string
		connection model.Connection
		text       string
		want       modeltest.Outcome
	}{
		{"no rule", fromOutside, "", untouched},
		{"DNAT ends the table", fromOutside, table("nat", "-A PREROUTING "+dnat, "-A PREROUTING -p tcp -j DNAT --to-destination 10.0.0.3:8080"), reached},
		{"the node's packets meet OUTPUT", fromNode, table("nat", "-A PREROUTING "+dnat), untouched},
		{"and do so", fromNode, table("nat", "-A OUTPUT "+dnat), reached},
		{"a non-contiguous mask", fromOutside, table("nat", "-A PREROUTING -d 0.0.0.9/0.0.0.15 "+dnat), reached},
		{"that is of other bits", fromOutside, table("nat", "-A PREROUTING -d 0.0.0.32/0.0.0.240 "+dnat), reached},
		{"that does not fit", fromOutside, table("nat", "-A PREROUTING -d 0.0.0.8/0.0.0.15 "+dnat), untouched},
		{"another port", fromOutside, table("nat", "-A PREROUTING -p tcp -m tcp --dport 81 -j DNAT --to-destination 10.0.0.2:8080"), untouched},
		{"a negated source", fromOutside, table("nat", "-A PREROUTING ! -s 10.0.0.0/8 "+dnat), reached},
		{"an interface", fromOutside, table("nat", "-A PREROUTING -i eth+ "+dnat), reached},
		{"another interface", fromOutside, table("nat", "-A PREROUTING -i eth1 "+dnat), untouched},
		{"the node's packets have none", fromNode, table("nat", "-A OUTPUT ! -i eth+ "+dnat), reached},
		{"nor the address of one", fromOutside, table("nat", "-A PREROUTING -m addrtype --src-type LOCAL "+dnat), untouched},
		{"as the node's have", fromNode, table("nat", "-A OUTPUT -m addrtype --src-type LOCAL "+dnat), reached},
		{
			"a jump comes back", fromOutside,
			table("nat", ":X - [0:0]", "-A X -j RETURN", "-A X -p tcp -j DNAT --to-destination 10.0.0.3:8080", "-A PREROUTING -j X", "-A PREROUTING "+dnat), reached,
		},
		{
			"a goto comes back to who jumped", fromOutside,
			table("nat", ":X - [0:0]", ":Y - [0:0]", "-A X -g Y", "-A X -p tcp -j DNAT --to-destination 10.0.0.3:8080", "-A PREROUTING -j X", "-A PREROUTING "+dnat), reached,
		},
		{"ACCEPT ends all chains of the table", fromOutside, table("nat", ":X - [0:0]", "-A X -j ACCEPT", "-A PREROUTING -j X", "-A PREROUTING "+dnat), untouched},
		{"but not those of the next", fromOutside, table("nat", "-A PREROUTING -j ACCEPT") + table("filter", "-A FORWARD -j DROP"), dropped},
		{"reject", fromOutside, table("filter", "-A FORWARD -j REJECT --reject-with icmp-port-unreachable"), rejected},
		{"reset", fromOutside, table("filter", "-A FORWARD -p tcp -j REJECT --reject-with tcp-reset"), modeltest.Outcome{Verdict: model.Rejected, TCPReset: true}},
		{"a policy", fromOutside, table("filter", ":FORWARD DROP [0:0]"), dropped},
		{"a policy that does not concern it", fromOutside, table("filter", ":INPUT DROP [0:0]"), untouched},
		{"what is for the node meets INPUT", fromOutside, table("nat", "-A PREROUTING -p tcp -j DNAT --to-destination 192.168.0.2:80") + table("filter", ":INPUT DROP [0:0]"), dropped},
		{
			"and no POSTROUTING", fromOutside,
			table("nat", "-A PREROUTING -p tcp -j DNAT --to-destination 192.168.0.2:80", "-A POSTROUTING -j MASQUERADE"),
			to(netip.AddrPortFrom(node, 80), modeltest.Arrival{Share: 1}),
		},
		{
			"the node's packets to itself meet both", fromNode,
			table("nat", "-A OUTPUT -p tcp -j DNAT --to-destination 192.168.0.2:80") + table("filter", ":INPUT DROP [0:0]"), dropped,
		},
		{"filter sees the new destination", fromOutside, table("nat", "-A PREROUTING "+dnat) + table("filter", "-A FORWARD -d 172.30.0.41/32 -j DROP"), reached},
		{"a new connection", fromOutside, table("filter", "-A FORWARD -m conntrack --ctstate NEW -j DROP"), dropped},
		{"that is not established", fromOutside, table("filter", "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j DROP"), untouched},
		{"not translated", fromOutside, table("filter", "-A FORWARD -m conntrack --ctstate DNAT -j DROP"), untouched},
		{"translated", fromOutside, table("nat", "-A PREROUTING "+dnat) + table("filter", "-A FORWARD -m conntrack --ctstate DNAT -j DROP"), dropped},
		{
			"translated to what it was", fromOutside,
			table("nat", "-A PREROUTING -p tcp -j DNAT --to-destination 172.30.0.41:80") + table("filter", "-A FORWARD -m conntrack --ctstate DNAT -j DROP"), untouched,
		},
		{
			"a mark is set, seen, and cleared", fromOutside,
			table("nat", "-A PREROUTING -j MARK --set-xmark 0x4000/0x4000", "-A PREROUTING -j MARK --set-xmark 0x1/0x1",
				"-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j ACCEPT", "-A POSTROUTING -j MARK --set-xmark 0x4000/0x0", "-A POSTROUTING -j MASQUERADE"),
			to(vip, modeltest.Arrival{Share: 1, Masquerade: true, Mark: 1}),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := run(t, tt.text, tt.connection)
			if err != nil {
				t.Fatal(err)
			}
			got.Trace = nil
			if diff := cmp.Diff(tt.want, got.Outcome, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func run(t *testing.T, text string, c model.Connection) (iptsim.Outcome, error) {
	t.Helper()
	tables := iptsim.NewTables(model.IPv4)
	if err := tables.Restore(text); err != nil {
		t.Fatal(err)
	}
	return iptsim.New(tables, node).Run(c)
}

func TestRunRefusesWhatCanNotBe(t *testing.T) {
	random := "-m statistic --mode random --probability 0.5 "
	for _, tt := range []struct{ name, text, want string }{
		{"DNAT in POSTROUTING", table("nat", "-A POSTROUTING "+dnat), "can't be replaced"},
		{"masquerading in PREROUTING", table("nat", "-A PREROUTING -j MASQUERADE"), "can't be replaced"},
		{"chance between verdicts", table("filter", "-A FORWARD "+random+"-j DROP"), "chance decides"},
		{"chance between sources", table("nat", "-A POSTROUTING "+random+"-j MASQUERADE"), "chance decides"},
		{"a goto out of a built-in chain", table("nat", ":X - [0:0]", "-A PREROUTING -g X"), "built-in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := run(t, tt.text, fromOutside); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want one with %q", err, tt.want)
			}
		})
	}
}

// table returns the text of a table.
func table(name string, lines ...string) string {
	return "*" + name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
}

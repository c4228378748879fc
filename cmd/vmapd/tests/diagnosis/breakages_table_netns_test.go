package diagnosis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// tableBreakages are those of the table in docs/troubleshooting.md, by their names: the first line of the command says
// the cause.
func tableBreakages() []breakage {
	web := vmapdtest.WebVIP.String()
	fromClient := []string{"trace", "--from", lab.ClientIP4, "--timeout", "10s", web}
	fromNode := []string{"trace", "--from", "node", web}
	each := []string{"trace", "--each", web}
	connects := connectsTo(vmapdtest.WebVIP)
	nft := func(rules string) func(*testing.T, *patient) {
		return func(t *testing.T, p *patient) { vmapdtest.Feed(t, p.Node, rules+"\n", "nft", "-f", "-") }
	}
	ip := func(t *testing.T, p *patient, args string) {
		vmapdtest.Feed(t, p.Node, "", "ip", strings.Fields(args)...)
	}
	drops := func(rule string, from, to int) func(*testing.T, *patient) { // in the firewalls of some pods
		const text = "table inet guard { chain in { type filter hook input priority 0; %s drop;\n}\n}\n"
		return func(t *testing.T, p *patient) {
			for _, pod := range p.Pods()[from:to] {
				vmapdtest.Feed(t, pod.Namespace, fmt.Sprintf(text, rule), "nft", "-f", "-")
			}
		}
	}
	return []breakage{
		{
			name: "`net.ipv4.ip_forward` is 0", command: []string{"doctor"}, exit: 3, broken: true,
			spoil: func(t *testing.T, p *patient) {
				if err := p.Node.Sysctl("net/ipv4/ip_forward", "0"); err != nil {
					t.Fatal(err)
				}
			},
			want: "fail forwarding net.ipv4.ip_forward is 0",
		},
		{
			name: "a firewall drops one endpoint of three", command: each,
			spoil: nft("table inet guard { chain out { type filter hook output priority 0; ip daddr 10.0.0.3 drop;\n}\n}"),
			want:  "=> 1 of 3 endpoints faulty: 10.0.0.3:8080",
		},
		{
			name: "the chain FORWARD has the policy DROP", command: fromClient, meanwhile: connects, broken: true,
			spoil: func(t *testing.T, p *patient) {
				vmapdtest.Feed(t, p.Node, "", "iptables-nft", "-P", "FORWARD", "DROP")
			},
			want: "=> dropped by table ip filter, chain FORWARD, by its policy, which is not vmapd's.",
		},
		{
			name: "no pod matches the selector", spoil: breakService("selector"),
			command: []string{"explain", "--from", "node", "svc/selector"},
			want:    `=> rejected: Service default/selector, port "http", has no endpoint that can answer`,
		},
		{
			name: "a wrong targetPort", spoil: breakService("number-of-port"),
			command: []string{"trace", "svc/number-of-port"},
			want:    "=> forwarded to 10.0.0.2:9999 by veth1, which refused it with a TCP reset: nothing listens on that port",
		},
		{
			name: "the pods' own firewall", command: fromNode, spoil: drops("tcp dport 8080", 0, 3), broken: true,
			want: "=> forwarded to 10.0.0.",
			more: []string{", which did not answer within 3s", " -> check the pod's firewall, NetworkPolicies on its node"},
		},
		{
			name: "`rp_filter`, and answers leave by another interface", command: fromClient, meanwhile: connects, broken: true,
			spoil: func(t *testing.T, p *patient) {
				if err := p.Node.Sysctl("net/ipv4/conf/eth0/rp_filter", "1"); err != nil {
					t.Fatal(err)
				}
				ip(t, p, "route replace 203.0.113.0/24 dev veth3")
			},
			want: "=> dropped, because the kernel does not route it to 10.0.0.",
			more: []string{": the reverse path filter refuses the source 203.0.113.9 on interface eth0"},
		},
		{ // the limit of connection tracking is the machine's: doctor's own test has it
			name: "connection tracking is full", command: []string{"doctor"},
			want: "fail conntrack ", more: []string{" entries: at the limit, new connections are dropped"},
		},
		{
			name: "policy Local, and no local endpoint", spoil: breakService("local"),
			command: []string{"explain", "--from", "node", "svc/local"},
			want:    "=> dropped: the policy is Local, and no endpoint on this node can answer",
		},
		{
			name: "the client is outside loadBalancerSourceRanges", spoil: breakService("source-ranges"),
			command: []string{"explain", "--from", lab.ClientIP4, externalIP + ":80"},
			want:    "=> dropped: 203.0.113.9 is not in loadBalancerSourceRanges",
		},
		{
			name: "the daemon is stopped", command: []string{"doctor"}, exit: 3,
			spoil: func(t *testing.T, p *patient) { p.daemon.Kill(t) },
			want:  "fail daemon no daemon answers",
		},
		{
			name: "one endpoint of three is silent", command: each, spoil: drops("tcp dport 8080", 1, 2),
			want: "=> 1 of 3 endpoints faulty: 10.0.0.3:8080",
		},
		{
			name: "a rule drops the client's address", command: fromClient, meanwhile: connects, broken: true,
			spoil: nft("table inet guard { chain early { type filter hook prerouting priority raw; " +
				"ip saddr 203.0.113.9 drop;\n}\n}"),
			want: "=> dropped by table inet guard, chain early, rule 1 (ip saddr 203.0.113.9 drop), which is not vmapd's.",
		},
		{
			name: "the path to the pods has a small MTU", command: fromNode, spoil: drops("meta length > 1000", 0, 3),
			want: "=> forwarded to 10.0.0.",
			more: []string{
				", which accepted it. But a packet with ",
				" bytes got no answer within 1s, though small ones pass: an MTU on the path is smaller",
			},
		},
		{
			name: "an address that no Service has", spoil: func(*testing.T, *patient) {},
			command: []string{"explain", "--from", "node", "172.30.9.9:80"},
			want:    "=> dropped: 172.30.9.9 is in a range of cluster IPs, and no Service served on this node has it",
		},
		{
			name: "a mark leads to a blackhole", command: fromClient, meanwhile: connects, broken: true,
			spoil: func(t *testing.T, p *patient) {
				const chain = "table inet theirs { chain early { type filter hook prerouting priority -150; "
				nft(chain+"meta mark set 0x7;\n}\n}")(t, p)
				ip(t, p, "rule add priority 77 fwmark 7 table 77")
				ip(t, p, "route add blackhole 10.0.0.0/8 table 77")
			},
			want: "=> dropped, because the kernel does not route it to 10.0.0.",
			more: []string{": the route 10.0.0.0/8 of table 77 makes it a blackhole (ip rule 77, by the packet's mark 0x7)."},
		},
	}
}

// The table has each breakage with the command, what its first line begins with, where … stands for any text, and the
// time until it was printed. -update measures the times, which are not asserted: a test that passes leaves the page as
// it is.
func TestTroubleshootingHasTheTable(t *testing.T) {
	t.Parallel()
	page := vmapdtest.Folder(t) + "/docs/troubleshooting.md"
	breakages := tableBreakages()
	t.Run("each", func(t *testing.T) {
		for i := range breakages {
			if b := &breakages[i]; b.spoil != nil {
				b.firstLine = true
				t.Run(b.name, b.run)
			}
		}
	})
	before := testaid.Read(t, page)
	table := "| What is broken | First command | Its first line | Seconds |\n|---|---|---|--:|\n"
	for _, b := range breakages {
		line := strings.Join(append([]string{b.want}, b.more...), "…")
		if !strings.HasSuffix(line, ".") {
			line += "…"
		}
		command := strings.ReplaceAll(strings.Join(b.command, " "), " --timeout 10s", "")
		row, seconds := fmt.Sprintf("| %s | `vmapd %s` | `%s` |", b.name, command, line), " "
		if _, old, ok := strings.Cut(before, "\n"+row); ok && !*testaid.Update {
			seconds, _, _ = strings.Cut(old, "|\n")
		} else if b.took > 0 {
			seconds = fmt.Sprintf(" %.1f ", b.took.Seconds())
		}
		table += row + seconds + "|\n"
	}
	testaid.Tables(t, page, map[string]string{"breakages": table})
}

package diagnosis

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// nodeBreakages are those that break connections on the node, beside vmapd.
func nodeBreakages() []breakage {
	fromClient := func(t *testing.T, p *patient) { p.wantSilence(t, p.Client, vmapdtest.WebVIP) }
	toNodePort := func(t *testing.T, p *patient) { p.wantSilence(t, p.Client, vmapdtest.WebNodePort) }
	nft := func(rules string) func(*testing.T, *patient) {
		return func(t *testing.T, p *patient) { vmapdtest.Feed(t, p.Node, rules+"\n", "nft", "-f", "-") }
	}
	sysctl := func(name, value string) func(*testing.T, *patient) {
		return func(t *testing.T, p *patient) {
			if err := p.Node.Sysctl(name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	doctor := []string{"doctor"}
	return []breakage{
		{ // what is smaller beyond this node, trace notices
			name: "MTUs of the pods' networks that differ", command: doctor,
			spoil: func(t *testing.T, p *patient) {
				vmapdtest.Feed(t, p.Node, "", "ip", "link", "set", "veth1", "mtu", "1400")
			},
			want: "ok pod-routes the MTU is 1400 to fd00:10::2 by veth1, and 1500 to fd00:10::",
			more: []string{"if large packets hang, a firewall drops ICMP errors about them"},
		},
		{
			name: "node-port firewall of iptables-legacy", command: doctor, symptom: toNodePort,
			spoil: func(t *testing.T, p *patient) {
				vmapdtest.Feed(t, p.Node, "", "iptables-legacy", "-t", "mangle", "-A", "PREROUTING", "-p", "tcp", "--dport",
					"30000:32767", "-j", "DROP")
			},
			want: "warn firewall iptables-legacy has the tables mangle: their rules may drop connections to Services, and " +
				"the kernel cannot trace them",
			more: []string{"-> iptables-legacy-save lists them"},
		},
		{
			name: "FORWARD with policy DROP, of iptables-nft", command: doctor, symptom: fromClient, broken: true,
			spoil: func(t *testing.T, p *patient) { vmapdtest.Feed(t, p.Node, "", "iptables-nft", "-P", "FORWARD", "DROP") },
			want: "warn firewall table ip filter, chain FORWARD (hook forward, priority 0), which is not vmapd's, may drop " +
				"connections to Services: its policy is drop",
			more: []string{
				"-> vmapd trace ADDRESS:PORT/PROTO shows whether a connection meets it; " +
					"if it is dropped there, accept forwarded packets from and to the ranges of pods in that chain",
			},
		},
		{
			name: "FORWARD with policy DROP, of iptables-legacy", command: doctor, symptom: fromClient, broken: true,
			spoil: func(t *testing.T, p *patient) {
				vmapdtest.Feed(t, p.Node, "", "iptables-legacy", "-P", "FORWARD", "DROP")
			},
			want: "warn firewall iptables-legacy has the tables filter: their rules may drop connections to Services, and " +
				"the kernel cannot trace them",
		},
		{
			name: "FORWARD with policy DROP that accepts others", command: doctor, symptom: fromClient, broken: true,
			spoil: nft(`table inet host { chain forward { type filter hook forward priority filter; policy drop;
				ct state vmap { established : accept, related : accept, invalid : drop }
				ip daddr { 10.99.0.0/16, 10.98.0.0/16 } accept; iifname "docker0" accept; tcp dport { 22, 443 } accept;
}
}`),
			want: "warn firewall table inet host, chain forward (hook forward, priority 0), which is not vmapd's, may drop " +
				"connections to Services: its policy is drop",
		},
		{
			name: "NOTRACK, of iptables-nft", command: doctor, symptom: fromClient, broken: true,
			spoil: func(t *testing.T, p *patient) { untrack(t, p, "iptables-nft") },
			want: "warn firewall table ip raw, chain PREROUTING, rule 1, which is not vmapd's, keeps packets from being " +
				"tracked (NOTRACK)",
			more: []string{
				"a connection to a Service that meets it reaches no endpoint, unless a process of this node has the address",
				"delete it, unless NodeLocal DNSCache made it and runs on this node",
			},
		},
		{
			name: "another program's DNAT to a cluster IP", command: doctor,
			spoil: func(t *testing.T, p *patient) {
				vmapdtest.Feed(t, p.Node, "", "iptables-nft",
					strings.Fields("-t nat -A PREROUTING -d 203.0.113.99 -p tcp -j DNAT --to-destination 172.30.0.10:80")...)
				nft("table ip guard { chain pre { type nat hook prerouting priority -110; ip daddr 203.0.113.98 dnat to "+
					"172.30.0.10;\n}\n}")(t, p)
			},
			want: "warn firewall table ip guard, chain pre, rule 1, which is not vmapd's, translates connections to " +
				"172.30.0.10, the address of a Service: the kernel translates once",
			more: []string{"warn firewall table ip nat, chain PREROUTING, rule 1, which is not vmapd's, translates " +
				"connections to 172.30.0.10"},
		},
		{
			name: "NOTRACK for answers", command: doctor, symptom: fromClient, broken: true,
			spoil: nft("table inet guard { chain early { type filter hook prerouting priority raw; ip saddr 10.0.0.0/24 tcp " +
				"sport 8080 notrack;\n}\n}"),
			want: "warn firewall table inet guard, chain early, rule 1, which is not vmapd's, keeps packets from being " +
				"tracked (NOTRACK)",
			more: []string{"an answer that meets it keeps the endpoint's address"},
		},
		{
			name: "NOTRACK, of iptables-legacy", command: doctor, symptom: fromClient, broken: true,
			spoil: func(t *testing.T, p *patient) { untrack(t, p, "iptables-legacy") },
			want:  "warn firewall iptables-legacy has the tables raw: their rules may drop connections to Services",
		},
		{
			name: "pods on a bridge past netfilter", command: doctor, exit: 3,
			spoil: func(t *testing.T, p *patient) {
				p.API.Set(vmapdtest.WebSlice(2)) // pod-1 alone
				bridgePods(t, p.World, "0")
			},
			symptom: func(t *testing.T, p *patient) {
				vmapdtest.WaitUntil(t, "the other pods leave the Service", func() bool {
					_, err := p.Pods()[1].Ask(t.Context(), "tcp", vmapdtest.WebVIP)
					return err != nil
				})
				p.wantSilence(t, p.Pods()[1].Namespace, vmapdtest.WebVIP)
				p.Ask(t, vmapdtest.WebVIP)
			},
			want: "fail bridges net.bridge.bridge-nf-call-iptables is 0, and pods are ports of the bridge cni0: ",
			more: []string{
				"what they send one another does not pass netfilter, so that they do not reach a Service with an endpoint on " +
					"the same bridge",
				"-> sysctl -w net.bridge.bridge-nf-call-iptables=1, and in /etc/sysctl.d",
				"fail bridges net.bridge.bridge-nf-call-ip6tables is 0, and pods are ports of the bridge cni0: ",
			},
		},
		{
			name: "IPv6 off", command: doctor, exit: 3, spoil: sysctl("net/ipv6/conf/all/disable_ipv6", "1"),
			symptom: func(t *testing.T, p *patient) { p.wantSilence(t, p.Client, vmapdtest.WebVIP6) },
			want:    "fail ipv6 net.ipv6.conf.all.disable_ipv6 is 1, and",
		},
		{
			name: "IPv6 forwarding off", command: doctor, exit: 3, spoil: sysctl("net/ipv6/conf/all/forwarding", "0"),
			symptom: func(t *testing.T, p *patient) { p.wantSilence(t, p.Client, vmapdtest.WebVIP6) },
			want:    "fail forwarding net.ipv6.conf.all.forwarding is 0",
		},
	}
}

// untrack keeps connections to web's cluster IP from being tracked, by a program of iptables.
func untrack(t *testing.T, p *patient, program string) {
	t.Helper()
	args := strings.Fields("-t raw -A PREROUTING -d 172.30.0.10/32 -p tcp -m tcp --dport 80 -j CT --notrack")
	vmapdtest.Feed(t, p.Node, "", program, args...)
}

func TestBreakagesOfTheNode(t *testing.T) {
	t.Parallel()
	for _, b := range nodeBreakages() {
		t.Run(b.name, b.run)
	}
}

// What pods on a bridge send one another passes netfilter after --init-only, so that they reach Services with endpoints
// among them.
func TestInitOnlyLeadsBridgesThroughNetfilter(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.API.Set(vmapdtest.WebSlice(2)) // pod-1 alone
	bridgePods(t, p.World, "0")
	p.startReady(t)
	p.wantSilence(t, p.Pods()[1].Namespace, vmapdtest.WebVIP)
	first := p.Start(t, "--init-only", "--conntrack-max-per-core=0")
	if code := first.Exit(t); code != 0 {
		t.Fatalf("--init-only: exit code %d: %s", code, first.Log)
	}
	if a, err := p.Pods()[1].Ask(t.Context(), "tcp", vmapdtest.WebVIP); err != nil || a.Pod != "pod-1" {
		t.Errorf("pod-2 does not reach pod-1 through the Service: %v, %v", a, err)
	}
	p.wantHealthy(t)
}

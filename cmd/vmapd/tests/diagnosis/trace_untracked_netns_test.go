package diagnosis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// untrackedByNFT keeps packets to web's cluster IP, and answers from there, from being tracked.
const untrackedByNFT = `table inet theirs {
	chain early { type filter hook prerouting priority raw; ip daddr 172.30.0.10 notrack; }
	chain out { type filter hook output priority raw; ip daddr 172.30.0.10 notrack; ip saddr 172.30.0.10 notrack; }
}
`

// serveLocally gives the node web's cluster IP, and a process that answers there, as NodeLocal DNSCache does.
func serveLocally(t *testing.T, w *lab.World) {
	t.Helper()
	vmapdtest.Feed(t, w.Node, "", "ip", "address", "add", "172.30.0.10/32", "dev", "lo")
	s, err := w.Node.Serve("local", 80)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
}

// untrackedBy runs programs of iptables with the rules of NodeLocal DNSCache, for web's cluster IP.
func untrackedBy(t *testing.T, w *lab.World, program string) {
	t.Helper()
	for _, protocol := range []string{"tcp", "udp"} {
		for _, rule := range []string{
			"PREROUTING -d 172.30.0.10/32 -p %s -m %s --dport 80",
			"OUTPUT -s 172.30.0.10/32 -p %s -m %s --sport 80", "OUTPUT -d 172.30.0.10/32 -p %s -m %s --dport 80",
		} {
			args := strings.Fields("-t raw -A " + fmt.Sprintf(rule, protocol, protocol) + " -j NOTRACK")
			legacy(program, args...)(t, w)
		}
	}
}

// A connection to a Service's address that is not tracked reaches no endpoint. Its answer is seen all the same.
func TestTraceOfUntrackedConnections(t *testing.T) {
	t.Parallel()
	const (
		noService = ", so no Service can be applied; "
		silent    = noService + "forwarded to 172.30.0.10:80 by eth0; no %s packet came back within 500ms. " +
			"ICMP errors about untracked connections are not visible.\n"
		nftRule = "=> not tracked because of table inet theirs, chain early, rule 1 (ip daddr 172.30.0.10 notrack), " +
			"which is not vmapd's"
		answers = "table inet theirs { chain early { type filter hook prerouting priority raw; tcp sport 8080 notrack; }\n}\n"
		source  = "table ip theirs { chain post { type nat hook postrouting priority srcnat; masquerade; }; }\n"
	)
	for _, tt := range []struct {
		name, network string
		spoil         func(t *testing.T, w *lab.World)
		want          []string
	}{
		{
			"by iptables-legacy", "tcp", func(t *testing.T, w *lab.World) { untrackedBy(t, w, "iptables-legacy") },
			[]string{
				"note: iptables-legacy has rules in the tables raw. The kernel cannot trace them; ",
				"=> not tracked, though no rule of nftables was seen to say so" + fmt.Sprintf(silent, "TCP"),
			},
		},
		{
			"by nft, with a process of the node", "tcp", func(t *testing.T, w *lab.World) {
				serveLocally(t, w)
				vmapdtest.Feed(t, w.Node, untrackedByNFT, "nft", "-f", "-")
			},
			[]string{
				"The answer came from 172.30.0.10:80 (SYN and ACK).\n   output, to eth0\n",
				"      table inet theirs, chain out, rule 2 (ip saddr 172.30.0.10 notrack)\n",
				nftRule + noService + "delivered to 172.30.0.10:80 on this node itself, which accepted it.\n",
			},
		},
		{
			"by iptables-nft, with a process of the node", "udp", func(t *testing.T, w *lab.World) {
				serveLocally(t, w)
				untrackedBy(t, w, "iptables-nft")
			},
			[]string{noService + "delivered to 172.30.0.10:80 on this node itself, which answered.\n"},
		},
		{
			"the answer", "tcp", func(t *testing.T, w *lab.World) {
				vmapdtest.Feed(t, w.Node, answers, "nft", "-f", "-")
			},
			[]string{
				"(SYN and ACK).\n   prerouting, from veth", "      table inet theirs, chain early, rule 1 (tcp sport 8080 notrack)\n",
				", which accepted it. But the answer was not tracked because of table inet theirs, chain early, " +
					"rule 1 (tcp sport 8080 notrack), which is not vmapd's: it came from 10.0.0.",
				":8080 in place of 172.30.0.10:80, and the client does not know that address.\n",
			},
		},
		{
			"the answer to a replaced source", "tcp", func(t *testing.T, w *lab.World) {
				vmapdtest.Feed(t, w.Node, answers, "nft", "-f", "-")
				vmapdtest.Feed(t, w.Node, source, "nft", "-f", "-")
			},
			[]string{
				"The source is 192.168.0.2:",
				"note: Rules before connection tracking may keep the answer from being tracked. ",
				"; no answer was seen within 500ms.\n",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, known := traceWorld(t)
			tt.spoil(t, w)
			tellsOf(t, w, known, tt.network, "172.30.0.10:80", tt.want...)
		})
	}
}

// What a trace says of a connection of its own does not contradict how that connection ended.
func TestTraceOfItsOwnUntrackedConnection(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	serveLocally(t, w)
	for name, rules := range map[string]func(){
		"iptables-nft": func() { untrackedBy(t, w, "iptables-nft") },
		"nft":          func() { vmapdtest.Feed(t, w.Node, untrackedByNFT, "nft", "-f", "-") },
	} {
		rules()
		for _, protocol := range []string{"tcp", "udp"} {
			args := []string{"--from", "node", "--wait", "500ms", "172.30.0.10:80/" + protocol}
			text := startTrace(t, w.Node, append(known, args...)...).told(t)
			for _, want := range []string{
				"note: The connection that vmapd made itself: it succeeded.",
				", so no Service can be applied; delivered to 172.30.0.10:80 on this node itself, which a",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("%s, %s: want %q in\n%s", name, protocol, want, text)
				}
			}
		}
		vmapdtest.Feed(t, w.Node, "", "sh", "-c", "nft delete table inet theirs || iptables-nft -t raw -F")
	}
}

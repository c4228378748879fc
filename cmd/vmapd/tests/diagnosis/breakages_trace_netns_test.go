package diagnosis

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// traceBreakages are those of packets: nothing is wrong with the node's settings or with the Service, or nobody
// looks where it is. The client connects while the command waits.
func traceBreakages() []breakage {
	traces := func(to netip.AddrPort) []string {
		return []string{
			"trace", "--from", lab.ClientIP4, "--wait", "500ms", "--timeout", "10s", "--expect", "forwarded",
			to.String(),
		}
	}
	command, toNodePort := traces(vmapdtest.WebVIP), traces(vmapdtest.WebNodePort)
	connects, connectsToNodePort := connectsTo(vmapdtest.WebVIP), connectsTo(vmapdtest.WebNodePort)
	silence := func(t *testing.T, p *patient) { p.wantSilence(t, p.Client, vmapdtest.WebVIP) }
	nodePortSilence := func(t *testing.T, p *patient) { p.wantSilence(t, p.Client, vmapdtest.WebNodePort) }
	nft := func(rules string) func(*testing.T, *patient) {
		return func(t *testing.T, p *patient) { vmapdtest.Feed(t, p.Node, rules+"\n", "nft", "-f", "-") }
	}
	// onePod leaves the Service pod-1, and spoils more.
	onePod := func(more func(t *testing.T, p *patient)) func(*testing.T, *patient) {
		return func(t *testing.T, p *patient) {
			p.API.Set(vmapdtest.WebSlice(2))
			vmapdtest.WaitUntil(t, "the other pods leave the Service", func() bool {
				for range 20 {
					if a, err := p.Client.Ask(t.Context(), "tcp", vmapdtest.WebVIP); err != nil || a.Pod != "pod-1" {
						return false
					}
				}
				return true
			})
			more(t, p)
		}
	}
	return []breakage{
		{
			name: "node-port firewall in nftables", command: toNodePort, exit: 2, meanwhile: connectsToNodePort,
			symptom: nodePortSilence,
			spoil: nft("table inet guard { chain early { type filter hook prerouting priority raw; tcp dport 30000-32767 " +
				"drop;\n}\n}"),
			want: "=> dropped by table inet guard, chain early, rule 1 (tcp dport 30000-32767 drop), which is not " +
				"vmapd's.",
		},
		{
			name: "node-port firewall with exceptions", command: toNodePort, exit: 2, meanwhile: connectsToNodePort,
			symptom: nodePortSilence,
			spoil: nft("table inet guard { chain between { type filter hook forward priority filter; ip saddr != 10.0.0.0/8 " +
				"meta l4proto tcp ct original proto-dst 30000-32767 drop;\n}\n}"),
			want: "=> dropped by table inet guard, chain between, rule 1 (",
			more: []string{"which is not vmapd's."},
		},
		{
			name: "NOTRACK, of nftables", command: command, exit: 2, meanwhile: connects, symptom: silence, broken: true,
			spoil: nft("table inet guard { chain early { type filter hook prerouting priority raw; ip daddr 172.30.0.0/16 " +
				"notrack;\n}\n}"),
			want: "=> not tracked because of table inet guard, chain early, rule 1 (ip daddr 172.30.0.0/16 notrack), which " +
				"is not vmapd's, so no Service can be applied;",
		},
		{
			name: "answers are dropped", command: command, exit: 2, meanwhile: connects, symptom: silence, broken: true,
			spoil: func(t *testing.T, p *patient) {
				vmapdtest.Feed(t, p.Node, "table inet guard { chain back { type filter hook postrouting priority 200; ip daddr "+
					"203.0.113.0/24 tcp flags & (syn | ack) == syn | ack drop;\n}\n}\n", "nft", "-f", "-")
			},
			want: "But the answer was dropped on the return path, by table inet guard, chain back, rule 1",
		},
		{
			name: "a pod that has gone", command: command, exit: 2, meanwhile: connects, symptom: silence, broken: true,
			spoil: onePod(func(t *testing.T, p *patient) { deafPod(t, p.World) }),
			want: "no host answers for the address 10.0.0.2 on interface veth1. -> check that the pod still runs (ip neighbour), " +
				"and the network plugin",
		},
		{
			name: "no route to a pod", command: command, exit: 2, meanwhile: connects,
			spoil: onePod(func(t *testing.T, p *patient) { vmapdtest.Feed(t, p.Node, "", "ip", "route", "del", "10.0.0.2") }),
			symptom: func(t *testing.T, p *patient) {
				if a, err := p.Client.Ask(t.Context(), "tcp", vmapdtest.WebVIP); err == nil {
					t.Errorf("%s answers", a.Pod)
				}
			},
			want: "=> dropped, because the kernel does not route it to 10.0.0.2: the route 10.0.0.0/8 of table main makes it " +
				"unreachable (ip rule 32766).",
		},
	}
}

// connectsTo makes the client connect again and again.
func connectsTo(to netip.AddrPort) func(*testing.T, *patient, <-chan struct{}) {
	return func(t *testing.T, p *patient, done <-chan struct{}) {
		t.Helper()
		for {
			_, _ = p.Client.Ask(t.Context(), "tcp", to)
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

func TestBreakagesOfPackets(t *testing.T) {
	t.Parallel()
	for _, b := range traceBreakages() {
		t.Run(b.name, b.run)
	}
}

package main

import (
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// traceBreakages are those of packets: nothing is wrong with the node's settings or with the Service, or nobody
// looks where it is. The client connects while the command waits.
func traceBreakages() []breakage {
	command := []string{"trace", "--from", lab.ClientIP4, "--wait", "500ms", "--timeout", "10s", "--expect", "forwarded", webVIP.String()}
	silence := func(t *testing.T, p *patient) { p.wantSilence(t, p.Client, webVIP) }
	// onePod leaves the Service pod-1, and spoils more.
	onePod := func(more func(t *testing.T, p *patient)) func(*testing.T, *patient) {
		return func(t *testing.T, p *patient) {
			p.api.Set(webSlice(2))
			waitLong(t, "the other pods leave the Service", p.daemon, func() bool {
				for range 20 {
					if a, err := p.Client.Ask(t.Context(), "tcp", webVIP); err != nil || a.Pod != "pod-1" {
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
			name: "answers are dropped", command: command, exit: 2, meanwhile: connects, symptom: silence,
			spoil: func(t *testing.T, p *patient) {
				feed(t, p.Node, "table inet guard { chain back { type filter hook postrouting priority 200; ip daddr 203.0.113.0/24 tcp flags & (syn | ack) == syn | ack drop;\n}\n}\n", "nft", "-f", "-")
			},
			want: "But the answer was dropped on its way back, in table inet guard, chain back, rule 1",
		},
		{
			name: "a pod's own firewall", command: command, exit: 2, meanwhile: connects, symptom: silence,
			spoil: onePod(func(t *testing.T, p *patient) {
				feed(t, p.Pods()[0].Namespace, "table inet guard { chain in { type filter hook input priority 0; tcp dport 8080 drop;\n}\n}\n", "nft", "-f", "-")
			}),
			want: "=> forwarded to 10.0.0.2:8080 by veth1, which did not answer within 500ms.",
		},
		{
			name: "a pod that has gone", command: command, exit: 2, meanwhile: connects, symptom: silence,
			spoil: onePod(func(t *testing.T, p *patient) { deafPod(t, p.World) }),
			want:  "no host answers for the address 10.0.0.2 on interface veth1.",
		},
		{
			name: "no route to a pod", command: command, exit: 2, meanwhile: connects,
			spoil: onePod(func(t *testing.T, p *patient) { feed(t, p.Node, "", "ip", "route", "del", "10.0.0.2") }),
			symptom: func(t *testing.T, p *patient) {
				if a, err := p.Client.Ask(t.Context(), "tcp", webVIP); err == nil {
					t.Errorf("%s answers", a.Pod)
				}
			},
			want: "=> dropped, because the kernel has no way to 10.0.0.2: no route.",
		},
	}
}

// connects makes the client connect again and again.
func connects(t *testing.T, p *patient, done <-chan struct{}) {
	t.Helper()
	for {
		_, _ = p.Client.Ask(t.Context(), "tcp", webVIP)
		select {
		case <-done:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestBreakagesOfPackets(t *testing.T) {
	t.Parallel()
	for _, b := range traceBreakages() {
		t.Run(b.name, b.run)
	}
}

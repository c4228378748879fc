package diagnosis

import (
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

// A connection to a Service's address that is not tracked reaches no endpoint. Its answer is seen all the same.
func TestTraceOfUntrackedConnections(t *testing.T) {
	t.Parallel()
	const (
		noService = ", so no Service can be applied; "
		nftRule   = "=> not tracked because of table inet theirs, chain early, rule 1 (ip daddr 172.30.0.10 notrack), " +
			"which is not vmapd's"
		answers = "table inet theirs { chain early { type filter hook prerouting priority raw; tcp sport 8080 notrack; }\n}\n"
	)
	for _, tt := range []struct {
		name  string
		spoil func(t *testing.T, w *lab.World)
		want  []string
	}{
		{
			"with a process of the node", func(t *testing.T, w *lab.World) {
				serveLocally(t, w)
				vmapdtest.Feed(t, w.Node, untrackedByNFT, "nft", "-f", "-")
			},
			[]string{
				"The answer came from 172.30.0.10:80 (accepted).\n   output, to eth0\n",
				"      table inet theirs, chain out, rule 2 (ip saddr 172.30.0.10 notrack)\n",
				nftRule + noService + "delivered to 172.30.0.10:80 on this node itself, which accepted it.\n",
			},
		},
		{
			"the answer", func(t *testing.T, w *lab.World) {
				vmapdtest.Feed(t, w.Node, answers, "nft", "-f", "-")
			},
			[]string{
				"(accepted).\n   prerouting, from veth",
				"      table inet theirs, chain early, rule 1 (tcp sport 8080 notrack)\n",
				", which accepted it. But the answer was not tracked because of table inet theirs, chain early, " +
					"rule 1 (tcp sport 8080 notrack), which is not vmapd's: it comes from 10.0.0.",
				":8080 in place of 172.30.0.10:80, and the client does not know that address.\n",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, known := traceWorld(t)
			tt.spoil(t, w)
			tellsOf(t, w, w.Client, known, "tcp", "172.30.0.10:80", tt.want...)
		})
	}
}

package diagnosis

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// Rules of other programs that mark packets or connections are in the story where they apply, on the path of the
// answer, too, although they let the packet go on.
func TestTraceShowsRulesThatMark(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	vmapdtest.Feed(t, w.Node, `table inet theirs {
		chain early {
			type filter hook prerouting priority mangle
			ct direction original ct mark set 0x80
			ct direction reply meta mark set ct mark
			counter
		}
}
`, "nft", "-f", "-")
	for _, args := range []string{
		"-t mangle -A FORWARD -p tcp --dport 8080 -m comment --comment fwd -j MARK --set-xmark 0x1/0x1",
		"-t mangle -A FORWARD -p tcp --dport 8080 -j CONNMARK --save-mark",
	} {
		vmapdtest.Feed(t, w.Node, "", "iptables-nft", strings.Fields(args)...)
	}
	tellsOf(t, w, known, "tcp", "172.30.0.10:80",
		"1. prerouting, from eth0\n   table inet theirs, chain early, rule 1 (ct direction original ct mark set 0x80)\n",
		"   table ip mangle, chain FORWARD, rule 1 (tcp dport 8080 xt target \"MARK\" --set-xmark 0x1/0x1 comment \"fwd\")\n",
		"   table ip mangle, chain FORWARD, rule 2 (tcp dport 8080 xt target \"CONNMARK\" --save-mark)\n",
		"(SYN and ACK).\n   prerouting, from veth",
		"\n      table inet theirs, chain early, rule 2 (ct direction reply meta mark set ct mark)\n",
		", which accepted it.\n",
	)
}

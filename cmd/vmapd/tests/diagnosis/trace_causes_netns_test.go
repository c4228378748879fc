package diagnosis

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/nettest"
)

// Where no rule of nftables ends a packet's way, a line names the cause.
func TestTraceNamesCausesBeyondRules(t *testing.T) {
	t.Parallel()
	const (
		web4, web6        = "172.30.0.10:80", "[fd00:172:30::10]:80"
		closed4           = "172.30.0.30:80" // its endpoint is pod-1 alone
		forward, forward6 = "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"
	)
	for _, tt := range []struct {
		name, network, dest string
		spoil               func(t *testing.T, w *lab.World)
		want                []string
	}{
		{
			"ip_forward off", "tcp", web4, sysctl(forward, "0"),
			[]string{
				"=> dropped, because the kernel does not route it to 10.0.0.",
				": this node does not forward packets (the sysctl net.ipv4.conf.eth0.forwarding is 0).\n",
			},
		},
		{
			"IPv6 forwarding off", "tcp", web6, sysctl(forward6, "0"),
			[]string{
				"=> dropped, because the kernel does not route it to fd00:10::",
				": this node does not forward packets (the sysctl net.ipv6.conf.all.forwarding is 0).\n",
			},
		},
		{
			"a route that prohibits", "tcp", closed4, func(t *testing.T, w *lab.World) {
				vmapdtest.Feed(t, w.Node, "", "ip", "route", "replace", "prohibit", "10.0.0.2/32")
			},
			[]string{"=> dropped, because the kernel does not route it to 10.0.0.2: the route 10.0.0.2/32 of table main " +
				"makes it prohibited (ip rule 32766).\n"},
		},
		{
			"a rule of iptables-legacy about the answer", "tcp", web4, legacy("iptables-legacy", "-A", "FORWARD", "-o", "eth0",
				"-m", "conntrack", "--ctstate", "ESTABLISHED", "-j", "DROP"),
			[]string{
				"note: iptables-legacy has rules in the tables filter. The kernel cannot trace them; ",
				"which accepted it. But the answer was lost on the return path: no rule of nftables was seen to drop it.\n",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, known := traceWorld(t)
			tt.spoil(t, w)
			tellsOf(t, w, w.Client, known, tt.network, tt.dest, tt.want...)
		})
	}
}

func sysctl(name, value string) func(*testing.T, *lab.World) {
	return func(t *testing.T, w *lab.World) {
		if err := w.Node.Sysctl(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

// deafPod makes pod-1 one that does not answer who has its address.
func deafPod(t *testing.T, w *lab.World) {
	t.Helper()
	pod := w.Pods()[0].Namespace
	vmapdtest.Feed(t, pod, "table inet deaf { chain input { type filter hook input priority 0; icmpv6 type "+
		"nd-neighbor-solicit drop; }; }\n", "nft", "-f", "-")
	vmapdtest.Feed(t, pod, "", "ip", "link", "set", "eth0", "arp", "off")
	for _, address := range []string{"10.0.0.2", "fd00:10::2"} {
		vmapdtest.Feed(t, w.Node, "", "ip", "neighbour", "del", address, "dev", "veth1")
	}
}

// legacy changes rules of iptables-legacy.
func legacy(program string, args ...string) func(*testing.T, *lab.World) {
	return func(t *testing.T, w *lab.World) {
		if out, err := w.Node.Command(t.Context(), program, args...).CombinedOutput(); err != nil {
			nettest.Missing(t, "iptables-legacy: "+strings.TrimSpace(string(out)))
		}
	}
}

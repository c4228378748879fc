package conntrack

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// On a new node, pods may connect before there are rules: the first packet leaves by the default
// route, and the kernel would send all that follow the same way. Until connection tracking has forgotten the flow, the
// rules can't translate it, and must not refuse it: a refusal is final.
func TestConnectionsThatBeginBeforeTheRules(t *testing.T) {
	t.Parallel() // waiting for packets that are sent again is most of the time
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			w := labtest.New(t)
			leadAway(t, w)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			vips := []string{"172.30.0.10:80", "[fd00:172:30::10]:80"}
			connected := make(chan error, len(vips))
			for _, vip := range vips {
				go func() { connected <- connect(ctx, w.Client, netip.MustParseAddrPort(vip)) }()
			}
			vmapdtest.WaitUntil(t, "first packets are tracked", func() bool {
				return strings.Count(vmapdtest.Feed(t, w.Node, "", "cat", "/proc/net/nf_conntrack"), "SYN_SENT") == len(vips)
			})
			vmapdtest.StartDemo(t, w.Node, "--backend="+backend)
			for range vips {
				if err := <-connected; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// leadAway lets packets to cluster IPs leave the node to nobody, and switches connection tracking on, as the rules of a
// network plugin or firewall do.
func leadAway(t *testing.T, w *lab.World) {
	t.Helper()
	vmapdtest.Feed(t, w.Node, "table inet other { chain forward { type filter hook forward priority 0; ct state "+
		"established accept; }; }", "nft", "-f", "-")
	for _, args := range []string{
		"link add away type veth peer name nobody", "link set away up", "link set nobody up",
		"route add 172.30.0.0/16 dev away", "neigh add 172.30.0.10 lladdr 02:00:00:00:00:01 dev away",
		"-6 route add fd00:172:30::/112 dev away", "neigh add fd00:172:30::10 lladdr 02:00:00:00:00:01 dev away",
	} {
		vmapdtest.Feed(t, w.Node, "", "ip", strings.Fields(args)...)
	}
}

// connect connects by TCP, and asks.
func connect(ctx context.Context, from *lab.Namespace, to netip.AddrPort) error {
	c, err := from.Dial(ctx, "tcp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Ask(ctx)
	return err
}

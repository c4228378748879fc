package conntrack

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

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

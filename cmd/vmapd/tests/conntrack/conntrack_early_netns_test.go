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
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// On a new node, pods may connect before there are rules: the first packet leaves by the default
// route, and the kernel would send all that follow the same way.
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

// Until connection tracking has forgotten the flow, what the client sends again meets rules that can't translate it any more. They
// must not refuse it: a refusal is final.
func TestAConnectionThatBeganBeforeTheRulesIsNotRefused(t *testing.T) {
	forEachTracker(t, func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend) {
		w := labtest.New(t)
		leadAway(t, w)
		vips := []string{"172.30.0.10:80", "[fd00:172:30::10]:80"}
		connected := make(chan error, 2*len(vips))
		for _, vip := range vips {
			for _, from := range []*lab.Namespace{w.Client, w.Node} {
				go func() { connected <- connect(t.Context(), from, netip.MustParseAddrPort(vip)) }()
			}
		}
		tracked := func() string { return vmapdtest.Feed(t, w.Node, "", "cat", "/proc/net/nf_conntrack") }
		vmapdtest.WaitUntil(t, "first packets are tracked", func() bool { return strings.Count(tracked(), "SYN_SENT") == cap(connected) })
		web := modeltest.NewService("default/web").On("172.30.0.10", "fd00:172:30::10").TCP("http", 80)
		b := modeltest.Builder(vmapdtest.LabConfig(), modeltest.OurNode(), web, modeltest.NewSlice("default/web-4", "web").TCP("http", 8080).Ready("10.0.0.2"),
			modeltest.NewSlice("default/web-6", "web").IPv6().TCP("http", 8080).Ready("fd00:10::2"))
		if err := open(t, w.Node).Apply(t.Context(), b.Snapshot()); err != nil {
			t.Fatal(err)
		}
		for range cap(connected) { // for two seconds, in which SYNs are sent again
			if err := <-connected; err == nil || strings.Contains(err.Error(), "refused") {
				t.Errorf("a client that sent its first packet again: %v", err)
			}
		}
	})
}

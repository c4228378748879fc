package conntrack

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// trackers are the backends whose flows conntrack cleans up. Each returns what programs the
// node's kernel.
var trackers = []struct {
	name string
	open func(t *testing.T, node *lab.Namespace) reconcile.Backend
}{
	{"nftables", func(t *testing.T, node *lab.Namespace) reconcile.Backend {
		t.Helper()
		return vmapdtest.OpenKernel(t, node, kernel.Options{})
	}},
	{"iptables-legacy", openTablesIn("-legacy")},
	{"iptables-nft", openTablesIn("-nft")},
}

func openTablesIn(variant string) func(*testing.T, *lab.Namespace) reconcile.Backend {
	return func(t *testing.T, node *lab.Namespace) reconcile.Backend {
		t.Helper()
		b := inside{node: node}
		err := node.Do(func() (err error) {
			b.IPTables, err = host.OpenIPTables(iptables.Options{}, slog.New(slog.DiscardHandler), variant)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// everywhere are all frontends of web.
func everywhere() []netip.AddrPort {
	return append(vmapdtest.Frontends(model.IPv4), vmapdtest.Frontends(model.IPv6)...)
}

// enough datagrams say where a stream goes.
const enough = 10

// forEachTracker runs a test with each backend.
func forEachTracker(t *testing.T, test func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend)) {
	t.Helper()
	t.Parallel() // waiting for datagrams is most of the time
	for _, backend := range trackers {
		t.Run(backend.name, func(t *testing.T) {
			t.Parallel()
			test(t, backend.open)
		})
	}
}

// A sender that never pauses, and reads nothing, is sent to an endpoint that is there, by
// whatever address and family it sends to.
func TestUDPFlowsFollowTheEndpoints(t *testing.T) {
	forEachTracker(t, func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend) {
		tr := newTracked(t, open, 3)
		client := tr.client(t, everywhere()...)
		// A pod's own, which is not masqueraded.
		pod := tr.Pods()[2]
		inside := tr.send(t, pod.Namespace, [2]string{pod.IP4.String(), pod.IP6.String()},
			vmapdtest.Frontends(model.IPv4)[0], vmapdtest.Frontends(model.IPv6)[0])
		node := tr.send(t, tr.Node, [2]string{lab.NodeIP4, lab.NodeIP6}, vmapdtest.Frontends(model.IPv4)[0],
			vmapdtest.Frontends(model.IPv6)[0])
		streams := append(append(client, inside...), node...)

		tr.mustCease(t, streams)
		vmapdtest.WaitUntil(t, "flows are tracked before there is a Service", func() bool { return len(tr.entries(t)) > 0 })
		tr.set(append(vmapdtest.WebSlices([]int{1}), vmapdtest.Web())...)
		tr.mustArrive(t, "pod-1", streams)
		tr.set(vmapdtest.WebSlices([]int{2})...)
		tr.mustArrive(t, "pod-2", streams)
		tr.set(vmapdtest.WebSlices(nil)...)
		tr.mustCease(t, streams)
		tr.set(vmapdtest.WebSlices([]int{1})...)
		tr.mustArrive(t, "pod-1", streams)
		// Whoever has the pod's address then, is not to hear anything.
		tr.delete(vmapdtest.Web())
		tr.mustCease(t, streams)
		tr.set(vmapdtest.Web())
		tr.mustArrive(t, "pod-1", streams)
	})
}

// A connection over TCP ends by itself; it is ended only where the Service says so, and
// then the client is told.
func TestTCPConnectionsEndOnlyIfAsked(t *testing.T) {
	t.Parallel()
	for _, graceful := range []bool{false, true} {
		t.Run(fmt.Sprintf("grace %v", graceful), func(t *testing.T) {
			t.Parallel()
			tr := newTracked(t, trackers[0].open, 2, 8080) // connection tracking does not depend on who programs it
			service := vmapdtest.Web()
			if graceful {
				service = service.ConnectionGrace("300ms")
			}
			answeredBy := func(to netip.AddrPort, pod string) {
				t.Helper()
				vmapdtest.WaitUntil(t, fmt.Sprintf("%v is answered by %s", to, pod), func() bool {
					a, err := tr.Client.Ask(t.Context(), "tcp", to)
					return err == nil && a.Pod == pod
				})
			}
			tr.set(append(vmapdtest.WebSlices([]int{1}), service)...)
			var conns []*lab.Conn
			for _, to := range everywhere() {
				answeredBy(to, "pod-1")
				c, err := tr.Client.Dial(t.Context(), "tcp", to)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				conns = append(conns, c)
			}
			tr.set(vmapdtest.WebSlices([]int{2})...)
			for i, to := range everywhere() {
				answeredBy(to, "pod-2")
				if a, err := conns[i].Ask(t.Context()); !graceful && (err != nil || a.Pod != "pod-1") {
					t.Errorf("%v: the connection to pod-1: %v, %v", to, a, err)
				}
			}
			for i, to := range everywhere() {
				ends := func() bool { // a busy machine may not answer in time before
					_, err := conns[i].Ask(t.Context())
					return lab.FailureOf(err) == lab.Reset
				}
				if graceful {
					vmapdtest.WaitUntil(t, fmt.Sprintf("the connection to %v is reset", to), ends)
				}
			}
		})
	}
}

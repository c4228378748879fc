package conntrack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// foreignDNAT translates datagrams of the client's second address before anybody else does, as
// a CNI plugin's hostPort may: to pod-3.
const foreignDNAT = `
table ip theirs {
	chain c {
		type nat hook prerouting priority -150
		ip saddr ` + lab.SecondClientIP4 + ` meta l4proto udp dnat to 10.0.0.4:8080
	}
}
table ip6 theirs {
	chain c {
		type nat hook prerouting priority -150
		ip6 saddr ` + lab.SecondClientIP6 + ` meta l4proto udp dnat to [fd00:10::4]:8080
	}
}
`

// translatedByOthers starts streams to web's addresses that another program translates.
func (tr *tracked) translatedByOthers(t *testing.T) []string {
	t.Helper()
	load := tr.Node.Command(t.Context(), "nft", "-f", "-")
	load.Stdin = strings.NewReader(foreignDNAT)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var streams []string
	for _, to := range everywhere() {
		if a := to.Addr(); a.String() == lab.NodeIP4 || a.String() == lab.NodeIP6 || to.Port() == 80 {
			name := "theirs to " + to.String()
			source := netip.MustParseAddr([]string{lab.SecondClientIP4, lab.SecondClientIP6}[model.FamilyOf(a)])
			s, err := tr.Client.Stream(name, netip.AddrPortFrom(source, uint16(21000+len(streams))), to, vmapdtest.StepOfStream)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			tr.streams[name] = s
			streams = append(streams, name)
		}
	}
	return streams
}

// entriesFrom returns the ids of the flows from the client's ports of a thousand.
func (tr *tracked) entriesFrom(t *testing.T, thousand int) map[string]uint32 {
	t.Helper()
	ids := map[string]uint32{}
	for entry, id := range tr.entries(t) {
		if strings.Contains(entry, fmt.Sprintf(":%d0", thousand)) {
			ids[entry] = id
		}
	}
	return ids
}

// nodePorts are web's node ports.
func nodePorts() []netip.AddrPort {
	return []netip.AddrPort{vmapdtest.Frontends(model.IPv4)[3], vmapdtest.Frontends(model.IPv6)[3]}
}

// The node's address changes while the endpoint is replaced: what is still sent to the old
// address is not for the endpoint that is gone, nor for the new one.
func TestUDPFlowsEndWithTheNodePortAddress(t *testing.T) {
	forEachTracker(t, func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend) {
		tr := newTracked(t, open, 3)
		theirs := tr.translatedByOthers(t)
		tr.set(append(vmapdtest.WebSlices([]int{1}), vmapdtest.Web())...)
		streams := tr.client(t, nodePorts()...)
		tr.mustArrive(t, "pod-1", streams)
		tr.mustHear(t, tr.sinks["pod-3"], theirs)
		tr.set(append(vmapdtest.WebSlices([]int{2}), modeltest.NewNode(modeltest.NodeName, "192.168.0.101", "fd00:192:168::101"))...)
		tr.mustCease(t, streams)
		tr.mustHear(t, tr.sinks["pod-3"], theirs)
		// And back.
		tr.set(modeltest.OurNode())
		tr.mustArrive(t, "pod-2", streams)
	})
}

// A Service is deleted while nobody cleans up. Its cluster IPs are nobody else's; flows to its other addresses may be, and stay.
func TestUDPFlowsEndWithAServiceThatWentMeanwhile(t *testing.T) {
	forEachTracker(t, func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend) {
		tr := newTracked(t, open, 3)
		tr.set(append(vmapdtest.WebSlices([]int{1}), vmapdtest.Web())...)
		streams := tr.client(t, vmapdtest.Frontends(model.IPv4)[0], vmapdtest.Frontends(model.IPv6)[0])
		tr.mustArrive(t, "pod-1", streams)
		tr.stop()
		theirs := tr.translatedByOthers(t)
		tr.mustHear(t, tr.sinks["pod-3"], theirs)
		before := tr.entriesFrom(t, 21)
		tr.start(t, open)
		tr.mustCease(t, streams)
		tr.mustHear(t, tr.sinks["pod-3"], theirs)
		kept := tr.entriesFrom(t, 21)
		for entry, id := range before {
			if strings.Contains(entry, "172.30.0") || strings.Contains(entry, "fd00:172:30") {
				continue // see isStray in sync/conntrack
			}
			if kept[entry] != id {
				t.Errorf("a flow that others translate is gone: %s", entry)
			}
		}
		tr.set(append(vmapdtest.WebSlices([]int{2}), vmapdtest.Web())...)
		tr.mustArrive(t, "pod-2", streams)
	})
}

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// underLoad makes connections to web until the test ends, none of which may be lost.
func underLoad(t *testing.T, c *vmapdtest.Cluster) {
	t.Helper()
	const rate = 100
	// A SYN that waits for a busy machine is not lost.
	stop := lab.Load{Rate: rate, Timeout: 10 * time.Second, Ask: func(ctx context.Context) (lab.Answer, error) {
		return c.Client.Ask(ctx, "tcp4", vmapdtest.WebVIP)
	}}.Start()
	t.Cleanup(func() {
		if r := stop(); r.Lost() > 0 || r.Sent == 0 {
			t.Errorf("lost connections: %v", &r)
		}
	})
}

// Changes of the Node that end kube-proxy are applied in place: the node's addresses, its pods' ranges, its
// zone. Without its Node, kube-proxy ends; here, changes of Services are programmed. A Node that registers again
// without its addresses and ranges is still the same machine.
func TestNodeChangesInPlace(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	second := netip.MustParseAddr("192.168.0.77")
	if err := c.Node.AddAddr(lab.UplinkName, netip.PrefixFrom(second, 32)); err != nil {
		t.Fatal(err)
	}
	p := c.StartReady(t, "--detect-local-mode", "NodeCIDR")
	underLoad(t, c)

	n := vmapdtest.OurNode()
	change := func(change func()) { change(); c.API.Set(n) }
	source := func(when string, isClient bool) {
		t.Helper()
		vmapdtest.Eventually(t, func() string {
			if a := c.Ask(t, vmapdtest.WebVIP); (a.Source.Addr() == netip.MustParseAddr(lab.ClientIP4)) != isClient {
				return fmt.Sprintf("%s: a pod sees %v", when, a.Source)
			}
			return ""
		})
	}
	for _, ranges := range []string{lab.OutsideRange4, lab.PodRange4} {
		change(func() { n.Spec.PodCIDRs = []string{ranges} })
		source("podCIDRs are "+ranges, ranges == lab.OutsideRange4)
	}
	only := func(when, pod string) {
		t.Helper()
		vmapdtest.Eventually(t, func() string {
			pods := map[string]bool{}
			for range 10 {
				pods[c.Ask(t, vmapdtest.WebVIP).Pod] = true
			}
			if len(pods) != 1 || !pods[pod] {
				return fmt.Sprintf("%s: %v answer", when, pods)
			}
			return ""
		})
	}
	slice := vmapdtest.WebSlice(2, 3)
	for i, zone := range []string{"a", "b"} {
		slice.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}
	c.API.Set(slice)
	for zone, pod := range map[string]string{"a": "pod-1", "b": "pod-2"} {
		change(func() { n.Labels = map[string]string{corev1.LabelTopologyZone: zone} })
		only("zone "+zone, pod)
	}

	first, next := vmapdtest.WebNodePort, netip.AddrPortFrom(second, vmapdtest.WebNodePort.Port())
	answers := func(to netip.AddrPort, want bool) {
		t.Helper()
		vmapdtest.Eventually(t, func() string {
			if a, err := c.Client.Ask(t.Context(), "tcp", to); (err == nil) != want {
				return fmt.Sprintf("%v answers: %+v, %v; want %v", to, a, err, want)
			}
			return ""
		})
	}
	answers(first, true)
	change(func() { n.Status.Addresses[0].Address = second.String() })
	answers(next, true)
	answers(first, false)
	c.API.Delete(n)
	c.WantEvent(t, "NodeNotEligible", "Node", lab.NodeName, "the Node is deleted")
	c.API.Set(vmapdtest.WebSlice(3))
	only("without a Node", "pod-2")
	answers(next, true)
	bare := vmapdtest.OurNode()
	bare.UID, bare.Status.Addresses, bare.Spec.PodCIDRs = "2", nil, nil
	c.API.Set(bare)
	c.WantEvent(t, "NodeNotEligible", "Node", lab.NodeName, "has no address")
	answers(next, true)
	answers(first, false)
	source("it registered again without ranges", false)
	n.UID = "2"
	c.API.Set(n)
	c.WantEvent(t, "NodeEligible", "Node", lab.NodeName, "again")
	answers(next, true)
	if asked := c.API.Requests(apitest.Nodes); len(asked) > 4 {
		t.Errorf("%d requests for one Node", len(asked))
	}
	p.MustStay(t)
}

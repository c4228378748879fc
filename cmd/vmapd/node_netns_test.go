package main

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// A Node that is deleted, and registers again without its addresses and pod ranges, is still the
// same machine: its node ports answer at the address of before, and nowhere else, and pods'
// sources are kept.
func TestNodePortsOutliveTheNodeObject(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	// The Node's address is one that comes second on its interface.
	second := netip.MustParseAddr("192.168.0.77")
	if err := c.Node.AddAddr(lab.UplinkName, netip.PrefixFrom(second, 24)); err != nil {
		t.Fatal(err)
	}
	whole := node()
	whole.UID = "1"
	whole.Spec.PodCIDRs = []string{"10.0.0.0/24"}
	whole.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: second.String()}}
	c.api.Set(whole)
	p := c.start(t, "--kubeconfig", c.kubeconfig(), "--hostname-override", lab.NodeName, "--detect-local-mode", "NodeCIDR")
	p.waitFor(t, "msg=ready")

	nodePort, first := netip.AddrPortFrom(second, webNodePort.Port()), webNodePort
	check := func(when string) {
		t.Helper()
		if _, err := c.Client.Ask(t.Context(), "tcp", nodePort); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if a, err := c.Client.Ask(t.Context(), "tcp", first); err == nil {
			t.Errorf("%s: %s answers at %v, too", when, a.Pod, first)
		}
		a, err := c.Pods()[0].Ask(t.Context(), "tcp", webVIP)
		if err != nil {
			t.Errorf("%s: %v", when, err)
		} else if got, want := a.Source.Addr(), netip.MustParseAddr(lab.FirstPodIP4); a.Pod != c.Pods()[0].Name() && got != want {
			t.Errorf("%s: %s sees %v as the source, want the pod %v", when, a.Pod, got, want)
		}
		if a, err := c.Client.Ask(t.Context(), "tcp", webVIP); err != nil {
			t.Errorf("%s: %v", when, err)
		} else if client := netip.MustParseAddr(lab.ClientIP4); a.Source.Addr() == client {
			t.Errorf("%s: %s sees %v, whose traffic to a cluster IP is masqueraded", when, a.Pod, client)
		}
	}
	check("registered")
	c.api.Delete(whole)
	wantStatus(t, c.Node, "http://127.0.0.1:10256/healthz", 503)
	wantStatus(t, c.Node, "http://127.0.0.1:10256/livez", 200)
	check("deleted")
	e := c.wantEvent(t, "NodeNotEligible", "Node", lab.NodeName, "the Node is deleted")
	if e.Type != corev1.EventTypeWarning {
		t.Errorf("the event: %+v", e)
	}

	bare := node()
	bare.UID, bare.Status.Addresses, bare.Spec.PodCIDRs = "2", nil, nil
	c.api.Set(bare)
	c.wantEvent(t, "NodeNotEligible", "Node", lab.NodeName, "has no address")
	check("registered again without addresses")

	whole.UID = "2"
	c.api.Set(whole)
	c.wantEvent(t, "NodeEligible", "Node", lab.NodeName, "again")
	wantStatus(t, c.Node, "http://127.0.0.1:10256/healthz", 200)
	check("registered again")
	p.mustStay(t)
}

// underLoad makes connections to web until the test ends, none of which may be lost.
func (c *apiCluster) underLoad(t *testing.T) {
	t.Helper()
	const rate = 100
	for _, to := range []netip.AddrPort{webVIP, webNodePort} {
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		report := make(chan lab.Report, 1)
		go func() {
			// A SYN that waits for a busy machine is not lost.
			report <- lab.Load{Rate: rate, Timeout: 10 * time.Second, Ask: func(ctx context.Context) (lab.Answer, error) {
				return c.Client.Ask(ctx, "tcp4", to)
			}}.Run(ctx)
		}()
		t.Cleanup(func() {
			time.Sleep(500 * time.Millisecond) // what the last change did shows after it
			stop()
			r := <-report
			if r.Lost() > 0 || r.Sent < rate/4 {
				t.Errorf("connections to %v: %v", to, &r)
			}
		})
	}
}

// wantSource waits until a pod sees a new connection to web come from an address.
func (c *apiCluster) wantSource(t *testing.T, what string, isClient bool) {
	t.Helper()
	eventually(t, func() string {
		if a := c.ask(t, webVIP); (a.Source.Addr() == netip.MustParseAddr(lab.ClientIP4)) != isClient {
			return fmt.Sprintf("%s: a pod sees %v", what, a.Source)
		}
		return ""
	})
}

// wantAnswer waits until somebody answers.
func (c *apiCluster) wantAnswer(t *testing.T, what string, to netip.AddrPort) {
	t.Helper()
	eventually(t, func() string {
		if _, err := c.Client.Ask(t.Context(), "tcp", to); err != nil {
			return fmt.Sprintf("%s: %v", what, err)
		}
		return ""
	})
}

// secondNodeIP is one more address of the node.
const secondNodeIP = "192.168.0.77"

func (c *apiCluster) addSecondNodeIP(t *testing.T) {
	t.Helper()
	if err := c.Node.AddAddr(lab.UplinkName, netip.MustParsePrefix(secondNodeIP+"/32")); err != nil {
		t.Fatal(err)
	}
}

// Changes of the Node that end kube-proxy are applied in place: the node's addresses, its pods' ranges, its
// zone.
func TestNodeChangesInPlace(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.addSecondNodeIP(t)
	p := c.start(t, "--kubeconfig", c.kubeconfig(), "--hostname-override", lab.NodeName, "--detect-local-mode", "NodeCIDR")
	p.waitFor(t, "msg=ready")
	c.underLoad(t)

	n := node()
	change := func(change func()) { change(); c.api.Set(n) }
	second := netip.MustParseAddrPort(secondNodeIP + ":30080")
	if _, err := c.Client.Ask(t.Context(), "tcp", second); err == nil {
		t.Fatal("node ports answer on another address than the primary one")
	}
	change(func() { n.Spec.PodCIDRs = []string{lab.OutsideRange4} })
	c.wantSource(t, "the client is in podCIDRs", true)
	change(func() { n.Spec.PodCIDRs = []string{lab.PodRange4} })
	c.wantSource(t, "the client is not in podCIDRs", false)

	slice := webSlice(2, 3)
	slice.Endpoints[0].Hints = zoneHint("a")
	slice.Endpoints[1].Hints = zoneHint("b")
	c.api.Set(slice)
	for zone, pod := range map[string]string{"a": "pod-1", "b": "pod-2"} {
		change(func() { n.Labels = map[string]string{corev1.LabelTopologyZone: zone} })
		eventually(t, func() string {
			pods := map[string]bool{}
			for range 10 {
				pods[c.ask(t, webVIP).Pod] = true
			}
			if len(pods) != 1 || !pods[pod] {
				return fmt.Sprintf("zone %s: %v answer", zone, pods)
			}
			return ""
		})
	}
	p.mustStay(t)
}

// The primary address of the node is another one.
func TestNodeAddressChangesInPlace(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.addSecondNodeIP(t)
	p := c.start(t, "--kubeconfig", c.kubeconfig(), "--hostname-override", lab.NodeName)
	p.waitFor(t, "msg=ready")
	c.ask(t, webNodePort)
	n := node()
	n.Status.Addresses[0].Address = secondNodeIP
	c.api.Set(n)
	c.wantAnswer(t, "the new address", netip.MustParseAddrPort(secondNodeIP+":30080"))
	eventually(t, func() string {
		if a, err := c.Client.Ask(t.Context(), "tcp", webNodePort); err == nil {
			return fmt.Sprintf("the address of before answers: %v", a)
		}
		return ""
	})
	// Without its Node, kube-proxy ends. Services go on here, whatever is not known.
	c.api.Delete(n)
	c.api.Set(webSlice(3))
	eventually(t, func() string {
		if a := c.ask(t, webVIP); a.Pod != "pod-2" {
			return "without a Node, changes are not programmed: " + a.Pod + " answers"
		}
		return ""
	})
	c.api.Set(n)
	c.wantAnswer(t, "the Node is back", netip.MustParseAddrPort(secondNodeIP+":30080"))
	if asked := c.api.Requests(apitest.Nodes); len(asked) > 4 {
		t.Errorf("%d requests for one Node", len(asked))
	}
	p.mustStay(t)
}

func zoneHint(zone string) *discoveryv1.EndpointHints {
	return &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
}

package main

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
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

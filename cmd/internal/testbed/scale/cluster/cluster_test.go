package cluster

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

func TestParseShape(t *testing.T) {
	for _, test := range []struct {
		text string
		want Shape
		err  string
	}{
		{text: "5000x50", want: Shape{Services: 5000, Endpoints: 50}},
		{text: "realistic", want: Shape{Services: 5000, Mixed: true}},
		{text: "realistic:60", want: Shape{Services: 60, Mixed: true}},
		{text: "5000", err: `shape "5000": want SERVICESxENDPOINTS, realistic or realistic:SERVICES`},
		{text: "0x1", err: `shape "0x1": "0" is not a number from 1 to 1000000`},
		{text: "1x", err: `shape "1x": "" is not a number from 1 to 1000000`},
		{text: "realistic:", err: `shape "realistic:": "" is not a number from 1 to 1000000`},
	} {
		got, err := ParseShape(test.text)
		text := ""
		if err != nil {
			text = err.Error()
		} else if got.String() != test.text {
			t.Errorf("%q is written as %q", test.text, got)
		}
		if got != test.want || text != test.err {
			t.Errorf("%q: got %+v and %q, want %+v and %q", test.text, got, text, test.want, test.err)
		}
	}
}

// history is all objects, and those of many changes, as text.
func history(t *testing.T, seed uint64) []string {
	t.Helper()
	c := New(Shape{Services: 60, Mixed: true}, seed)
	var lines []string
	add := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(text))
	}
	for o := range c.Objects() {
		add(o)
	}
	for i := range 500 {
		at := time.Unix(int64(i), 0)
		e, _ := c.Replace(at)
		add(e)
		for _, e := range c.Churn(at) {
			add(e)
		}
	}
	return lines
}

func TestTheSeedDecidesAll(t *testing.T) {
	first := history(t, 1)
	if diff := cmp.Diff(first, history(t, 1)); diff != "" {
		t.Errorf("the same seed makes another cluster (-first +second):\n%s", diff)
	}
	if slices.Equal(first, history(t, 2)) {
		t.Error("another seed makes the same cluster")
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"100x10":  {Services: 100, Slices: 100, Endpoints: 1000},
		"20x250":  {Services: 20, Slices: 60, Endpoints: 5000},
		"3x100":   {Services: 3, Slices: 3, Endpoints: 300},
		"4400x1":  {Services: 4400, Slices: 4400, Endpoints: 4400},
		"5000x50": {Services: 5000, Slices: 5000, Endpoints: 250_000},
	} {
		s, err := ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := New(s, 1).Size(); got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

// build is the snapshot that a node's proxy makes of all objects.
func build(c *Cluster) *model.Snapshot {
	b := model.NewBuilder(model.Config{NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true}})
	for o := range c.Objects() {
		switch o := o.(type) {
		case *corev1.Service:
			b.SetService(kube.Service(o))
		case *discoveryv1.EndpointSlice:
			b.SetEndpointSlice(kube.EndpointSlice(o))
		case *corev1.Node:
			b.SetNode(kube.Node(o))
		case *networkingv1.ServiceCIDR:
			b.SetServiceCIDR(kube.ServiceCIDR(o))
		}
	}
	return b.Snapshot()
}

// A proxy must find nothing wrong, or a measurement would leave out what is.
func TestObjectsAreValid(t *testing.T) {
	for _, s := range []Shape{{Services: 200, Endpoints: 3}, {Services: 2000, Mixed: true}} {
		c := New(s, 1)
		for i := range 5000 {
			c.Churn(time.Unix(int64(i), 0))
			c.Replace(time.Unix(int64(i), 0))
		}
		snapshot := build(c)
		for _, p := range snapshot.Problems() {
			t.Errorf("%v: %v", s, p)
		}
		if !s.Mixed {
			continue
		}
		for _, f := range model.Families {
			if len(snapshot.Family(f).ServiceCIDRs) != 1 || len(snapshot.Family(f).NodePortAddrs) != 1 {
				t.Errorf("%v: got ranges %v and node ports at %v, want one each", f, snapshot.Family(f).ServiceCIDRs, snapshot.Family(f).NodePortAddrs)
			}
		}
	}
}

func TestMixedHasSomeOfEverything(t *testing.T) {
	c := New(Shape{Services: 5000, Mixed: true}, 1)
	found := map[string]int{}
	count := func(what string, is bool) {
		if is {
			found[what]++
		}
	}
	for o := range c.Objects() {
		switch o := o.(type) {
		case *corev1.Service:
			count("headless", o.Spec.ClusterIP == corev1.ClusterIPNone)
			count("node port", o.Spec.Type == corev1.ServiceTypeNodePort)
			count("load balancer", len(o.Status.LoadBalancer.Ingress) > 0)
			count("local policy", o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal)
			count("health check", o.Spec.HealthCheckNodePort > 0)
			count("source ranges", len(o.Spec.LoadBalancerSourceRanges) > 0)
			count("affinity", o.Spec.SessionAffinity == corev1.ServiceAffinityClientIP)
			count("two families", len(o.Spec.ClusterIPs) == 2)
			count("UDP", o.Spec.Ports[0].Protocol == corev1.ProtocolUDP)
			count("two ports", len(o.Spec.Ports) == 2)
		case *discoveryv1.EndpointSlice:
			_, headless := o.Labels[corev1.IsHeadlessService]
			count("slice of headless", headless)
			count("slice of IPv6", o.AddressType == discoveryv1.AddressTypeIPv6)
			count("full slice", len(o.Endpoints) == maxPerSlice)
			count("empty slice", len(o.Endpoints) == 0)
			count("hints", len(o.Endpoints) > 0 && o.Endpoints[0].Hints != nil)
			for _, e := range o.Endpoints {
				count("on our node", *e.NodeName == NodeName)
			}
		}
	}
	for _, what := range []string{
		"headless", "node port", "load balancer", "local policy", "health check", "source ranges", "affinity", "two families",
		"UDP", "two ports", "slice of headless", "slice of IPv6", "full slice", "empty slice", "hints", "on our node",
	} {
		if found[what] == 0 {
			t.Errorf("there is no %s", what)
		}
	}
	t.Log(found)

	large, few := 0, 0
	for _, s := range c.services {
		if len(s.pods) >= 2000 {
			large++
		}
		if len(s.pods) <= 2 {
			few++
		}
	}
	if large == 0 || large > 5 || few < len(c.services)/2 {
		t.Errorf("got %d Services with thousands of endpoints and %d with at most two, of %d", large, few, len(c.services))
	}
}

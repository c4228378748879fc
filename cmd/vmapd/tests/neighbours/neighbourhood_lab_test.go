package neighbours

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// podCount is the number of pods that may be endpoints.
const podCount = 3

// randomLab makes clusters of the lab's addresses.
type randomLab struct{ *rand.Rand }

func choose[T any](r randomLab, from ...T) T { return from[r.IntN(len(from))] }

// config is of each detection mode in turn.
func (r randomLab) config(n int) model.Config {
	c := modeltest.Config()
	c.MasqueradeAll, c.DropInvalid = r.IntN(4) == 0, r.IntN(4) == 0
	c.NodePortAddresses.All = r.IntN(2) == 0
	c.Algorithm = choose(r, model.Random, model.Random, model.Maglev, model.MaglevPort)
	switch n % 5 {
	case 0:
		c.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix(lab.PodRange4), netip.MustParsePrefix(lab.PodRange6)}
	case 1:
		c.LocalPods.Mode = model.ByNodeCIDR
	case 2:
		c.LocalPods = model.LocalPods{Mode: model.ByInterfacePrefix, Interface: lab.PodLinkPrefix}
	case 3:
		c.LocalPods = model.LocalPods{Mode: model.ByBridge, Interface: lab.PodLinkPrefix + "2"} // of one pod only
	case 4: // pods can't be told
	}
	return c
}

func (r randomLab) slice(service string, f model.Family) modeltest.Slice {
	s := modeltest.NewSlice(service+"-"+f.String(), modeltest.Name(service).Name).Typed(f.String()).
		TCP("tcp", choose(r, int32(8080), 8081)).UDP("udp", choose(r, int32(8080), 8081)).TCP("other", choose(r, int32(8080), 8081))
	hints := r.IntN(3)
	for i := range podCount {
		if r.IntN(4) == 0 {
			continue
		}
		node := modeltest.OnNode(choose(r, modeltest.NodeName, modeltest.NodeName, "node-2"))
		options := []func(*model.SliceEndpoint){node}
		switch hints {
		case 1:
			options = append(options, modeltest.ForZones(choose(r, "zone-a", "zone-b")))
		case 2:
			options = append(options, modeltest.ForNodes(choose(r, modeltest.NodeName, "node-2")), modeltest.ForZones("zone-a"))
		}
		if r.IntN(4) == 0 {
			terminating := r.IntN(2) == 0
			options = append(options, modeltest.Conditions(!terminating && r.IntN(2) == 0, r.IntN(2) == 0, terminating))
		}
		s = s.Endpoint(modeltest.Pod(f, i).String(), options...)
		if r.IntN(8) == 0 { // an older pod had the address
			old := modeltest.Conditions(false, r.IntN(2) == 0, true)
			s = s.Endpoint(modeltest.Pod(f, i).String(), modeltest.OnNode(modeltest.NodeName), old)
		}
	}
	if r.IntN(6) == 0 {
		s = s.Local([]string{lab.NodeIP4, lab.NodeIP6}[f]) // in the node's own network
	}
	return s
}

// chosen returns who must have answered, or "" if no lookup table says so. The pod sees the client's
// port only if nothing masquerades.
func (n *neighbourhood) chosen(d model.Decision, a lab.Answer) string {
	if len(d.Targets) < 2 || d.Port.Slots(d.TrafficPolicy) == 0 {
		return ""
	}
	if d.Port.Algorithm == model.MaglevPort && a.Source.Addr() == d.Source && !d.Targets[0].SNAT.Masquerade() {
		d.SourcePort = a.Source.Port()
	}
	t, ok := d.Chosen()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s:%d", n.owner(t.Addr.Addr()), t.Addr.Port())
}

// impossible reports whether a pod connects to itself that is said to be on another node.
func impossible(d model.Decision) bool {
	return slices.ContainsFunc(d.Targets, func(t model.Target) bool { return t.Addr.Addr() == d.Source && !t.Local && !d.Node })
}

// serveEverywhere answers on both ports of all pods and of the node, with its port in the
// name, and lets no ICMP error be lost.
func (n *neighbourhood) serveEverywhere(t *testing.T) {
	t.Helper()
	for _, s := range []string{"net/ipv4/icmp_ratelimit", "net/ipv6/icmp/ratelimit"} {
		if err := n.Node.Sysctl(s, "0"); err != nil {
			t.Fatal(err)
		}
	}
	places := []*lab.Namespace{n.Node}
	for _, pod := range n.Pods() {
		places = append(places, pod.Namespace)
	}
	for _, ns := range places {
		for _, port := range []uint16{8080, 8081} {
			server, err := ns.Serve(fmt.Sprintf("%s:%d", ns.Name(), port), port)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
		}
	}
}

// owner returns the name of who has an address.
func (n *neighbourhood) owner(a netip.Addr) string {
	for _, pod := range n.Pods() {
		if a == pod.IP4 || a == pod.IP6 {
			return pod.Name()
		}
	}
	return n.Node.Name()
}

package conntrack

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// wantPass checks which flows a pass deletes.
func (c *cluster) wantPass(t *testing.T, what string, now time.Time, want, flows []string) {
	t.Helper()
	got, _ := c.pass(t, now, flows...)
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: deleted (-want +got):\n%s", what, diff)
	}
}

// nodePortsAt gives flows to the node port of dns on addresses, answered by pods.
func nodePortsAt(addrs, pods []string) (list []string) {
	for _, a := range addrs {
		for _, pod := range pods {
			list = append(list, fmt.Sprintf("udp %s:30053 from %s:8053", a, pod))
		}
	}
	return list
}

// The flows to the node port on an address that is one no more end, also if its endpoint went
// at the same time.
func TestAnAddressIsNoNodePortAddressAnyMore(t *testing.T) {
	now := modeltest.Moment(0)
	c := newCluster(append(dnsSlices(nil, 2), dns())...)
	c.apply(now)
	c.pass(t, now)
	elsewhere := modeltest.NewNode(modeltest.NodeName, "192.168.0.101", "fd00:192:168::101")
	ours := nodePortsAt([]string{"192.168.0.2", "[fd00:192:168::2]"}, []string{"10.0.0.2", "[fd00:10::2]"})
	ours = slices.DeleteFunc(ours, func(f string) bool { return (f[4] == '[') != (f[len(f)-6] == ']') })
	stay := slices.Concat(others, []string{
		"udp 192.168.0.2:30053", "tcp 192.168.0.2:30053 from 10.0.0.2:8053", "udp 192.168.0.7:30053 from 10.0.0.2:8053",
	})
	set(c, append(dnsSlices(nil, 3), elsewhere)...)
	c.apply(now)
	c.wantPass(t, "another address", now, ours, slices.Concat(ours, stay))

	// Two changes before a pass, which fails while a third one comes.
	set(c, modeltest.OurNode())
	c.apply(now)
	c.pass(t, now)
	set(c, dnsSlices(nil, 4)...)
	c.apply(now)
	f := &c.families[model.IPv4]
	p := f.begin(now)
	set(c, elsewhere)
	c.apply(now)
	f.end(p, fmt.Errorf("no"))
	late := nodePortsAt([]string{"192.168.0.2"}, []string{"10.0.0.3", "10.0.0.4"})
	c.wantPass(t, "after a failure", now, late, slices.Concat(late, others))
}

// The flows to a node port end, too, if its Service and then the node's address go before the next pass.
func TestAServiceGoesAndThenTheNodesAddress(t *testing.T) {
	now := modeltest.Moment(0)
	c := newCluster(append(dnsSlices(nil, 2), dns())...)
	c.apply(now)
	c.pass(t, now)
	dns().Delete(c.Builder)
	c.apply(now)
	set(c, modeltest.NewNode(modeltest.NodeName, "192.168.0.101", "fd00:192:168::101"))
	c.apply(now)
	ours := nodePortsAt([]string{"192.168.0.2"}, []string{"10.0.0.2"})
	c.wantPass(t, "both are gone", now, ours, slices.Concat(ours, others))
}

// With session affinity, a client may be remembered with an endpoint that is gone, and so its flow.
func TestAnAddressOfAServiceWithAffinityGoes(t *testing.T) {
	now := modeltest.Moment(0)
	c := newCluster(append(dnsSlices(nil, 2), dns().Sticky(60))...)
	c.apply(now)
	c.pass(t, now)
	set(c, modeltest.NewNode(modeltest.NodeName, "192.168.0.101", "fd00:192:168::101"))
	c.apply(now)
	ours := nodePortsAt([]string{"192.168.0.2"}, []string{"10.0.0.2", "10.0.0.9"})
	c.wantPass(t, "another address", now, ours, slices.Concat(ours, others))
}

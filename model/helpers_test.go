package model_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/persist"
)

// The address plan of these tests is modeltest's: pods 10.0.0.0/8, ClusterIPs
// 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2), load-balancer addresses
// 192.168.98.0/24, ExternalIPs 192.168.99.0/24, outside 203.0.113.0/24, and IPv6 twins.

type objects = []modeltest.Object

// compareAddrs compares addresses by ==.
var compareAddrs = []cmp.Option{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

var compareEndpoints = cmp.Comparer(func(a, b model.Endpoint) bool { return a == b })

// checkPorts compares the service ports of both families, IPv4 first.
func checkPorts(t *testing.T, s *model.Snapshot, want ...string) {
	t.Helper()
	got := append(modeltest.PortTexts(s.Family(model.IPv4)), modeltest.PortTexts(s.Family(model.IPv6))...)
	testaid.Equal(t, "service ports", append([]string{}, want...), append([]string{}, got...))
}

func checkProblems(t *testing.T, s *model.Snapshot, want ...string) {
	t.Helper()
	got := []string{}
	for _, p := range s.Problems {
		got = append(got, p.Error())
	}
	testaid.Equal(t, "problems", append([]string{}, want...), got)
}

// addrs collects addresses as sorted text.
func addrs[T interface {
	comparable
	String() string
}](set persist.Map[T, struct{}]) []string {
	var list []T
	for a := range set.All() {
		list = append(list, a)
	}
	return sorted(list)
}

func sorted[T fmt.Stringer](list []T) []string {
	texts := []string{}
	for _, a := range list {
		texts = append(texts, a.String())
	}
	slices.Sort(texts)
	return texts
}

// reasons are the names of Decide's reasons in the tests' output.
var reasons = map[model.Reason]string{
	model.NoService: "no Service", model.HasEndpoints: "has endpoints", model.FromPodInside: "from a pod inside",
	model.FromNodeInside: "from the node inside", model.NoEndpoints: "no endpoints", model.UnusedPort: "unused port",
	model.NoLocalEndpoints: "no local endpoints", model.SourceNotAllowed: "source not allowed",
	model.UnallocatedAddr: "unallocated address", model.LoopbackForwarder: "loopback forwarder",
}

var snatReasons = map[model.SNATReason]string{
	model.KeepSource: "", model.OnNode: " on the node", model.Hairpin: " masqueraded: hairpin",
	model.EveryClusterIP: " masqueraded: every cluster IP", model.OffCluster: " masqueraded: off-cluster",
	model.ExternalCluster: " masqueraded: external", model.FromNode: " masqueraded: from the node",
	model.ByForwarder: " masqueraded: by the forwarder",
}

// outcome returns a decision in one line:
//
//	forwarded, has endpoints: 10.0.0.2:8080, 10.0.0.3:8080 masqueraded: external
func outcome(s *model.Snapshot, c model.Connection) string {
	d := model.Decide(s, c)
	text := d.Verdict.String() + ", " + reasons[d.Why]
	for i, t := range d.Targets {
		text += [...]string{": ", ", "}[min(i, 1)] + t.Addr.String() + snatReasons[t.SNAT]
	}
	return text
}

// tcp is a connection. The address plan gives the input interface of its source; the node's
// own connections have none.
func tcp(source, dest string) model.Connection {
	c := model.Connection{
		Source: netip.MustParseAddr(source), Dest: netip.MustParseAddrPort(dest), Protocol: model.TCP,
		Interface: modeltest.Uplink,
	}
	switch {
	case source == modeltest.NodeIP4 || source == modeltest.NodeIP6 || c.Source.IsLoopback():
		c.Node, c.Interface = true, ""
	case strings.HasPrefix(source, "10.") || strings.HasPrefix(source, "fd00:10:"):
		c.Interface = modeltest.PodInterface
	}
	return c
}

// web is an ordinary Service, and webSlice has its endpoints.
func web() modeltest.Service {
	return modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80)
}

func webSlice() modeltest.Slice {
	return modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2", "10.0.0.3")
}

const webLine = "ns1/web:http/tcp [172.30.0.41:80 forward] 10.0.0.2:8080, 10.0.0.3:8080"

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

func hostAddrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, s := range texts {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

// textOf returns a snapshot in sorted lines, one fact each: two snapshots with the same text
// are the same desired state.
func textOf(s *model.Snapshot) []string {
	var lines []string
	for _, f := range model.Families {
		lines = append(lines, modeltest.FamilyText(s.Family(f))...)
	}
	lines = append(lines, fmt.Sprintf("node %+v", s.Node))
	for service, h := range s.HealthChecks.All() {
		lines = append(lines, fmt.Sprintf("health check of %v: %+v", service, h))
	}
	for _, p := range s.Problems {
		lines = append(lines, "problem "+p.Error())
	}
	return lines
}

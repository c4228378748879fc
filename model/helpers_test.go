package model_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// The address plan of these tests is modeltest's: pods 10.0.0.0/8, ClusterIPs
// 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2), load-balancer addresses
// 192.168.98.0/24, ExternalIPs 192.168.99.0/24, outside 203.0.113.0/24, and IPv6 twins.

type objects = []modeltest.Object

func equal[T any](t *testing.T, what string, want, got T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// compareAddrs lets cmp compare addresses as the comparable values that they are.
var compareAddrs = []cmp.Option{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// checkPorts compares the service ports of both families, IPv4 first.
func checkPorts(t *testing.T, s *model.Snapshot, want ...string) {
	t.Helper()
	got := append(modeltest.PortTexts(s.Family(model.IPv4)), modeltest.PortTexts(s.Family(model.IPv6))...)
	equal(t, "service ports", append([]string{}, want...), append([]string{}, got...))
}

func checkProblems(t *testing.T, s *model.Snapshot, want ...string) {
	t.Helper()
	got := []string{}
	for _, p := range s.Problems() {
		got = append(got, p.Error())
	}
	equal(t, "problems", append([]string{}, want...), got)
}

// addrs collects addresses as sorted text.
func addrs[T interface{ String() string }](seq func(func(T) bool)) []string {
	list := []string{}
	for a := range seq {
		list = append(list, a.String())
	}
	slices.Sort(list)
	return list
}

// web is a Service that is nothing special, and webSlice are its endpoints.
func web() modeltest.Service {
	return modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80)
}

func webSlice() modeltest.Slice {
	return modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2", "10.0.0.3")
}

const webLine = "ns1/web:http/tcp [172.30.0.41:80 forward] 10.0.0.2:8080, 10.0.0.3:8080"

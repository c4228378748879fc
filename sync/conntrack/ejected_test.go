package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// A client that waits for an endpoint which is ejected sends its first packet again, to another one. Connections that the endpoint
// has answered stay.
func TestConnectionsWithoutAnAnswerLeaveAnEjectedEndpoint(t *testing.T) {
	now := modeltest.Moment(0)
	c := newCluster(append(dnsSlices([]func(*model.SliceEndpoint){modeltest.OnNode("node-2")}, 2), dns().Annotated(model.AnnotationOutlierDetection, "true"),
		modeltest.NewSlice("kube-system/more-4", "dns").UDP("dns", 8053).TCP("dns-tcp", 8053).Local("10.0.0.3", "10.0.0.4"),
		modeltest.NewSlice("kube-system/more-6", "dns").IPv6().UDP("dns", 8053).TCP("dns-tcp", 8053).Local("fd00:10::3", "fd00:10::4"))...)
	c.apply(now)
	c.pass(t, now)
	gone := unanswered(to("tcp", 2))
	stay := slices.Concat(to("tcp", 2), to("udp", 2), unanswered(to("tcp", 3)), unanswered(to("tcp", 0)), others)
	e := &model.Ejections{}
	for _, at := range []string{"10.0.0.2:8053", "[fd00:10::2]:8053"} {
		e.Endpoints = append(e.Endpoints, model.Ejection{Endpoint: netip.MustParseAddrPort(at)})
	}
	c.SetEjections(e)
	c.apply(now)
	c.wantPass(t, "an endpoint is ejected", now, gone, slices.Concat(gone, stay))
	if _, did := c.pass(t, now); did {
		t.Error("there is a second pass")
	}
	c.SetEjections(&model.Ejections{Endpoints: e.Endpoints, Nodes: []model.Ejection{{Node: "node-2"}}})
	c.apply(now)
	c.wantPass(t, "its Node is", now, slices.Concat(to("udp", 2), unanswered(to("udp", 2))),
		slices.Concat(to("udp", 2), unanswered(to("udp", 2)), to("tcp", 2), to("udp", 3), others))
}

package cluster

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// sender is a client that sends to the Service web over UDP and never stops.
type sender struct {
	c     *vmapdtest.Cluster
	sinks map[byte]*lab.Sink // by the last byte of a pod's address
}

// senderPort is where the pods hear it.
const senderPort = 9000

// newSender makes the pods listen. It sends once it is started.
func newSender(t *testing.T, c *vmapdtest.Cluster) *sender {
	t.Helper()
	s := &sender{c, map[byte]*lab.Sink{}}
	for i, pod := range c.Pods() {
		sink, err := pod.Sink(senderPort)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sink.Close)
		s.sinks[byte(2+i)] = sink
	}
	return s
}

// only makes a pod the only endpoint.
func (s *sender) only(pod byte) {
	slice := vmapdtest.WebSlice(pod)
	*slice.Ports[1].Port = senderPort
	s.c.API.Set(slice)
}

// start begins to send.
func (s *sender) start(t *testing.T) {
	t.Helper()
	stream, err := s.c.Client.Stream("metric", netip.MustParseAddrPort(lab.ClientIP4+":20000"), vmapdtest.WebVIP, vmapdtest.StepOfStream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
}

// arrives waits until a pod hears more.
func (s *sender) arrives(t *testing.T, at byte) {
	t.Helper()
	before := s.sinks[at].Heard("metric")
	vmapdtest.Eventually(t, func() string {
		if s.sinks[at].Heard("metric") < before+10 {
			return "what is sent to web does not arrive at its only endpoint"
		}
		return ""
	})
}

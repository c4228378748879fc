package lab

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// A stream goes on while nobody listens, and its sink answers nothing.
func TestAStreamIsHeard(t *testing.T) {
	w := newWorld(t, 1)
	pod := w.Pods()[0]
	streams := map[string]*Stream{}
	for name, addrs := range map[string][2]netip.Addr{
		"over IPv4": {netip.MustParseAddr(ClientIP4), pod.IP4},
		"over IPv6": {netip.MustParseAddr(ClientIP6), pod.IP6},
	} {
		s, err := w.Client.Stream(name, netip.AddrPortFrom(addrs[0], 20000), netip.AddrPortFrom(addrs[1], 9000), time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		streams[name] = s
	}
	for name, s := range streams {
		testaid.WaitUntil(t, "it is sent "+name, func() bool { return s.Sent() >= 3 })
	}
	sink, err := pod.Sink(9000)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	for name := range streams {
		testaid.WaitUntil(t, "it is heard "+name, func() bool { return sink.Heard(name) >= 3 })
	}
	if got := sink.Heard("nobody"); got != 0 {
		t.Errorf("%d datagrams of nobody", got)
	}
}

package userspace

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// Each client stays with an endpoint, with datagrams of any size.
func TestEachUDPClientHasAnEndpointOfItsOwn(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	r.set(web("UDP", port), slice("UDP",
		r.pod(0, udpServer(t, 'a')), r.pod(1, udpServer(t, 'b'))))
	var clients []*net.UDPConn
	for range 60 { // they get one endpoint by chance once in 10^17 runs
		clients = append(clients, dialUDP(t, nodePort(port)))
	}
	var rounds [3]string
	for i, size := range []int{0, 1472, 65506} { // the largest answer is one longer
		for _, c := range clients {
			rounds[i] += string(ask(t, c, strings.Repeat("x", size)))
		}
	}
	if rounds[1] != rounds[0] || rounds[2] != rounds[0] || !strings.Contains(rounds[0], "a") || !strings.Contains(rounds[0], "b") {
		t.Errorf("want each client to stay with its own, got %q", rounds)
	}
}

func TestUDPClientsMoveIfTheirEndpointLeaves(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	a, b := r.pod(0, udpServer(t, 'a')), r.pod(1, udpServer(t, 'b'))
	r.set(web("UDP", port).Sticky(60), slice("UDP", a))
	c := dialUDP(t, nodePort(port))
	if name := ask(t, c, "1"); name != 'a' {
		t.Fatalf("got %c", name)
	}
	r.set(slice("UDP", a, b))
	if name := ask(t, c, "2"); name != 'a' {
		t.Errorf("a is there, but %c got the datagram", name)
	}
	r.set(slice("UDP", b))
	if name := ask(t, c, "3"); name != 'b' {
		t.Errorf("a is gone, but %c got the datagram", name)
	}
	r.set(slice("UDP"))
	if _, err := io.WriteString(c, "4"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without endpoints, want it refused, got %v", err)
	}
	r.set(slice("UDP", a))
	ask(t, c, "5")
	testaid.WaitUntil(t, "one client has one session", func() bool { return sessions(r) == 1 })
}

// sessions returns the number of clients.
func sessions(r *rig) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.flows)
}

// The endpoint of a client that refuses is chosen anew with its next datagram, so that the client comes to another one.
func TestADatagramThatIsRefusedGoesElsewhereTheNextTime(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	r.set(web("UDP", port), slice("UDP", r.pod(0, refusingUDP(t)), r.pod(1, udpServer(t, 'b'))))
	c := dialUDP(t, nodePort(port))
	testaid.WaitUntil(t, "an answer", func() bool {
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		var b [100]byte
		n, _ := c.Read(b[:])
		return n > 0
	})
}

func TestIdleUDPClientsAreForgotten(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	r.limits.idle = 20 * time.Millisecond
	r.set(web("UDP", port), slice("UDP", r.pod(0, udpServer(t, 'a'))))
	c := dialUDP(t, nodePort(port))
	ask(t, c, "1")
	testaid.WaitUntil(t, "the client is forgotten", func() bool { return sessions(r) == 0 })
	ask(t, c, "2")
}

// A client that sends more often than its time lasts is not forgotten, even if nobody answers, as a log server.
func TestUDPClientsThatSendAreNotForgotten(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	r.limits.idle = 2 * time.Second
	from := make(chan netip.AddrPort, 1)
	server := udpServing(t, func(_ *net.UDPConn, _ []byte, client netip.AddrPort) { from <- client })
	r.set(web("UDP", port), slice("UDP", r.pod(0, server)))
	c := dialUDP(t, nodePort(port))
	seen := map[netip.AddrPort]bool{}
	for start := time.Now(); time.Since(start) < r.limits.idle*3/2; time.Sleep(r.limits.idle / 20) {
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		seen[<-from] = true
	}
	if len(seen) != 1 {
		t.Errorf("a client that sends has %d flows, one after the other", len(seen))
	}
}

// At the limit, a new client takes the place of another one, who begins anew.
func TestAFullUDPNodePortForgetsAClient(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	r.limits.clients = 3
	r.set(web("UDP", port), slice("UDP", r.pod(0, udpServer(t, 'a'))))
	for i := range 10 {
		c := dialUDP(t, nodePort(port))
		ask(t, c, "1")
		ask(t, c, "2")
		if n := r.Stats()[model.IPv4].Accepted; n != uint64(i+1) {
			t.Errorf("client %d: there were %d sessions", i, n)
		}
	}
	testaid.WaitUntil(t, "three are left", func() bool { return sessions(r) == 3 })
	if n := r.numClients.Load(); n != 3 {
		t.Errorf("there are 3 clients, not %d", n)
	}
}

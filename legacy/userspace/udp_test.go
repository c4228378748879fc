package userspace

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
)

func TestDatagramsOfAnySizeAreForwarded(t *testing.T) {
	inBothFamilies(t, func(t *testing.T, f model.Family) {
		r, port := newRig(t), freePort(t)
		r.set(web("UDP", port), slice(f, "UDP", r.pod(0, udpServer(t, f, 'a'))))
		c := dialUDP(t, nodePort(f, port))
		for _, size := range []int{0, 1, 1472, 9000, 65506} { // the answer is one longer
			if name := ask(t, c, strings.Repeat("x", size)); name != 'a' {
				t.Errorf("%d bytes: got %c", size, name)
			}
		}
	})
}

func TestEachUDPClientHasAnEndpointOfItsOwn(t *testing.T) {
	inBothFamilies(t, func(t *testing.T, f model.Family) {
		r, port := newRig(t), freePort(t)
		r.set(web("UDP", port), slice(f, "UDP",
			r.pod(0, udpServer(t, f, 'a')), r.pod(1, udpServer(t, f, 'b'))))
		var clients []*net.UDPConn
		for range 60 { // they get one endpoint by chance once in 10^17 runs
			clients = append(clients, dialUDP(t, nodePort(f, port)))
		}
		var rounds [3]string
		for i := range rounds {
			for _, c := range clients {
				rounds[i] += string(ask(t, c, "1"))
			}
		}
		if rounds[1] != rounds[0] || rounds[2] != rounds[0] || !strings.Contains(rounds[0], "a") || !strings.Contains(rounds[0], "b") {
			t.Errorf("want each client to stay with its own, got %q", rounds)
		}
	})
}

func TestUDPClientsMoveIfTheirEndpointLeaves(t *testing.T) {
	inBothFamilies(t, func(t *testing.T, f model.Family) {
		r, port := newRig(t), freePort(t)
		a, b := r.pod(0, udpServer(t, f, 'a')), r.pod(1, udpServer(t, f, 'b'))
		r.set(web("UDP", port).Sticky(60), slice(f, "UDP", a))
		c := dialUDP(t, nodePort(f, port))
		if name := ask(t, c, "1"); name != 'a' {
			t.Fatalf("got %c", name)
		}
		r.set(slice(f, "UDP", a, b))
		if name := ask(t, c, "2"); name != 'a' {
			t.Errorf("a is there, but %c got the datagram", name)
		}
		r.set(slice(f, "UDP", b))
		if name := ask(t, c, "3"); name != 'b' {
			t.Errorf("a is gone, but %c got the datagram", name)
		}
		if n := sessions(r); n != 1 {
			t.Errorf("one client has %d sessions", n)
		}
	})
}

// onlyUDP is the listener of a rig that has one.
func onlyUDP(r *rig) *udpListener {
	r.Helper()
	for _, e := range r.entries {
		return e.listener.(*udpListener)
	}
	r.Fatal("there is no listener")
	return nil
}

func sessions(r *rig) int {
	l := onlyUDP(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sessions)
}

func TestUDPWithoutEndpointsIsRefused(t *testing.T) {
	inBothFamilies(t, func(t *testing.T, f model.Family) {
		r, port := newRig(t), freePort(t)
		a := r.pod(0, udpServer(t, f, 'a'))
		r.set(web("UDP", port), slice(f, "UDP", a))
		c := dialUDP(t, nodePort(f, port))
		ask(t, c, "1")
		r.set(slice(f, "UDP"))
		if _, err := io.WriteString(c, "2"); err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err := c.Read(b[:]); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("want it refused, got %v", err)
		}
		r.set(slice(f, "UDP", a))
		ask(t, c, "3")
	})
}

// Without an answer, a client of DNS asks again: it must come to another endpoint then.
func TestADatagramThatIsRefusedGoesElsewhereTheNextTime(t *testing.T) {
	for _, algorithm := range []string{"random", "maglev", "maglev-port"} {
		t.Run(algorithm, func(t *testing.T) {
			inBothFamilies(t, func(t *testing.T, f model.Family) {
				r, port := newRig(t), freePort(t)
				r.set(web("UDP", port).Algorithm(algorithm).Sticky(60), slice(f, "UDP",
					r.pod(0, refusingUDP(t, f)), r.pod(1, refusingUDP(t, f)),
					r.pod(2, udpServer(t, f, 'c')), r.pod(3, refusingUDP(t, f))))
				c := dialUDP(t, nodePort(f, port))
				asked := 0
				for {
					if asked++; asked > 4 {
						t.Fatal("there are 4 endpoints, and 4 datagrams did not reach the living one")
					}
					if _, err := io.WriteString(c, "hello"); err != nil {
						t.Fatal(err)
					}
					if answered(t, r, c, asked) {
						break
					}
				}
				for range 10 {
					if name := ask(t, c, "again"); name != 'c' {
						t.Errorf("got %c", name)
					}
				}
			})
		})
	}
}

// answered waits until a datagram was answered, or so many were refused in all.
func answered(t *testing.T, r *rig, c *net.UDPConn, refusals int) bool {
	t.Helper()
	var n int
	eventually(t, "an answer, or a refusal", func() bool {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		var b [100]byte
		n, _ = c.Read(b[:])
		return n > 0 || refusing(r) == refusals
	})
	within(t, c)
	return n > 0
}

func refusing(r *rig) int {
	l := onlyUDP(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.refusing)
}

func TestIdleUDPClientsAreForgotten(t *testing.T) {
	r, port := newRig(t), freePort(t)
	r.limits.idle = 20 * time.Millisecond
	r.set(web("UDP", port), slice(model.IPv4, "UDP", r.pod(0, udpServer(t, model.IPv4, 'a'))))
	c := dialUDP(t, nodePort(model.IPv4, port))
	ask(t, c, "1")
	eventually(t, "the client is forgotten", func() bool { return sessions(r) == 0 })
	ask(t, c, "2")
}

func TestUDPClientsThatSendAreNotForgotten(t *testing.T) {
	for _, answers := range []bool{true, false} { // a log server never answers
		t.Run(fmt.Sprintf("answers %v", answers), func(t *testing.T) {
			r, port := newRig(t), freePort(t)
			r.limits.idle = 400 * time.Millisecond
			from := make(chan netip.AddrPort, 1)
			server := udpServing(t, model.IPv4, func(c *net.UDPConn, _ []byte, client netip.AddrPort) {
				if answers {
					_, _ = c.WriteToUDPAddrPort([]byte("thanks"), client)
				}
				from <- client
			})
			r.set(web("UDP", port), slice(model.IPv4, "UDP", r.pod(0, server)))
			for range 10 {
				if stayed(t, dialUDP(t, nodePort(model.IPv4, port)), from, r.limits.idle) {
					return
				}
			}
			t.Error("this machine is too busy to send every 40 ms")
		})
	}
}

// stayed sends for three times as long as a client may be idle, and fails if the server
// sees more than one session. It returns false if it could not keep sending.
func stayed(t *testing.T, c io.Writer, from <-chan netip.AddrPort, idle time.Duration) bool {
	t.Helper()
	send := func() netip.AddrPort {
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		return <-from
	}
	first := send()
	tick := time.NewTicker(idle / 10)
	defer tick.Stop()
	start := time.Now()
	for last := start; last.Sub(start) < 3*idle; {
		<-tick.C
		if time.Since(last) > idle/2 {
			return false
		}
		last = time.Now()
		if got := send(); got != first {
			t.Fatalf("after %v the client has a second session, by %v after %v", time.Since(start), got, first)
		}
	}
	return true
}

// If all have refused, all are tried again: the one that recovers may be any of them.
func TestEndpointsThatRefusedAreTriedAgain(t *testing.T) {
	const pods = 3
	for recovers := range pods {
		r, port := newRig(t), freePort(t)
		s := slice(model.IPv4, "UDP")
		for n := range pods {
			s = s.Ready(r.pod(n, refusingUDP(t, model.IPv4)))
		}
		r.set(web("UDP", port).Algorithm("maglev"), s)
		c := dialUDP(t, nodePort(model.IPv4, port))
		for asked := 0; ; asked++ {
			if asked == pods {
				r.pod(recovers, udpServer(t, model.IPv4, 'r'))
			}
			if asked == 2*pods {
				t.Fatalf("endpoint %d is back, and %d datagrams did not reach it", recovers, pods)
			}
			if _, err := io.WriteString(c, "hello"); err != nil {
				t.Fatal(err)
			}
			if answered(t, r, c, asked%pods+1) {
				break
			}
		}
	}
}

func TestAFullUDPNodePortForgetsTheLongestIdleClient(t *testing.T) {
	r, port := newRig(t), freePort(t)
	r.limits.clients = 3
	r.set(web("UDP", port), slice(model.IPv4, "UDP", r.pod(0, udpServer(t, model.IPv4, 'a'))))
	at := nodePort(model.IPv4, port)
	first, second, third, fourth := dialUDP(t, at), dialUDP(t, at), dialUDP(t, at), dialUDP(t, at)
	for _, c := range []*net.UDPConn{first, second, third, first} { // now it is second that is idle for longest
		ask(t, c, "1")
	}
	had := func(c *net.UDPConn) bool {
		l := onlyUDP(r)
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.sessions[c.LocalAddr().(*net.UDPAddr).AddrPort()] != nil
	}
	ask(t, fourth, "1")
	if n := sessions(r); n != 3 || had(second) || !had(first) || !had(third) || !had(fourth) {
		t.Errorf("want sessions of all but the second, got %d", n)
	}
	ask(t, second, "2")
}

func TestTheEndForgetsUDPClients(t *testing.T) {
	r, port := newRig(t), freePort(t)
	r.set(web("UDP", port), slice(model.IPv4, "UDP", r.pod(0, udpServer(t, model.IPv4, 'a'))))
	for range 100 {
		ask(t, dialUDP(t, nodePort(model.IPv4, port)), "1")
	}
	if n := sessions(r); n != 100 {
		t.Errorf("want 100 sessions, got %d", n)
	}
	r.stop()
	if !isFree(port) {
		t.Error("the port is not free") // and newRig sees to it that no goroutine is left
	}
}

// An endpoint can leave while a session to it is being opened.
func TestNoSessionWithAnEndpointThatHasLeft(t *testing.T) {
	r, port := newRig(t), freePort(t)
	a, b := r.pod(0, udpServer(t, model.IPv4, 'a')), r.pod(1, udpServer(t, model.IPv4, 'b'))
	r.set(web("UDP", port), slice(model.IPv4, "UDP", a))
	l := onlyUDP(r)
	client := netip.MustParseAddrPort("127.0.0.1:9")
	endpoint, _ := l.chooseFor(l.decide(l.at, client, ""))
	conn, err := r.open.dialUDP(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	r.set(slice(model.IPv4, "UDP", b))
	l.begin(&session{client: client, endpoint: endpoint, conn: conn})
	if n := sessions(r); n != 0 {
		t.Errorf("want no session with %v, got %d", endpoint, n)
	}
}

package lab

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model/nettest"
)

const port = 8080

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	nettest.Main(m)
}

// newWorld builds a world of n pods that lasts as long as the test.
func newWorld(t *testing.T, n int) *World {
	t.Helper()
	nettest.Need(t)
	w, err := New(t.Context(), Config{Pods: n, Ports: []uint16{port}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// networks are the protocols that servers answer, with the pod's address and
// the client's for each.
func networks(p *Pod) []struct {
	name         string
	pod          netip.AddrPort
	client, node string
} {
	ip4, ip6 := netip.AddrPortFrom(p.IP4, port), netip.AddrPortFrom(p.IP6, port)
	return []struct {
		name         string
		pod          netip.AddrPort
		client, node string
	}{
		{"tcp4", ip4, ClientIP4, NodeIP4},
		{"tcp6", ip6, ClientIP6, NodeIP6},
		{"udp4", ip4, ClientIP4, NodeIP4},
		{"udp6", ip6, ClientIP6, NodeIP6},
	}
}

func TestPodsAnswerEveryone(t *testing.T) {
	w := newWorld(t, 3)
	other := w.Pods()[0]
	for _, p := range w.Pods() {
		for _, n := range networks(p) {
			self := other.IP4.String()
			if p.IP6 == n.pod.Addr() {
				self = other.IP6.String()
			}
			for _, from := range []struct {
				ns     *Namespace
				source string
			}{{w.Client, n.client}, {w.Node, n.node}, {other.Namespace, self}} {
				a, err := from.ns.Ask(t.Context(), n.name, n.pod)
				if err != nil {
					t.Error(err)
					continue
				}
				if want := p.Name() + " " + from.source; want != a.Pod+" "+a.Source.Addr().String() {
					t.Errorf("%s from %s: want %s, got %s %s", n.name, from.ns.Name(), want, a.Pod, a.Source)
				}
			}
		}
	}
}

func TestFailuresAreDistinguished(t *testing.T) {
	w := newWorld(t, 1)
	p := w.Pods()[0]
	at := netip.MustParseAddrPort
	for _, c := range []struct {
		name    string
		from    *Namespace
		network string
		to      netip.AddrPort
		want    Failure
	}{
		{"closed TCP port", w.Client, "tcp4", netip.AddrPortFrom(p.IP4, 9), Refused},
		{"closed TCP port, IPv6", w.Client, "tcp6", netip.AddrPortFrom(p.IP6, 9), Refused},
		{"closed UDP port", w.Client, "udp", netip.AddrPortFrom(p.IP4, 9), Refused},
		{"closed UDP port, IPv6", w.Client, "udp", netip.AddrPortFrom(p.IP6, 9), Refused},
		{"no such pod, from the node", w.Node, "tcp", at("10.1.2.3:80"), Unreachable},
		{"no such pod, from outside", w.Client, "tcp", at("10.1.2.3:80"), Unreachable},
		// Takes a second: the first ICMPv6 error arrives while connect(2) still
		// holds the socket, and is dropped (TcpExtLockDroppedIcmps).
		{"no such pod, from a pod, IPv6", p.Namespace, "tcp", at("[fd00:10::999]:80"), Unreachable},
		{"no such pod, over UDP from the node", w.Node, "udp", at("10.1.2.4:80"), Unreachable},
		// Without IP_RECVERR a UDP socket hears of no ICMP error but a closed port.
		{"no such pod, over UDP from outside", w.Client, "udp", at("10.1.2.4:80"), Timeout},
		{"service address that nobody translates", w.Client, "tcp", at("172.30.0.10:80"), Timeout},
		{"the same from the node, IPv6", w.Node, "udp", at("[fd00:172:30::10]:80"), Timeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			if c.want == Timeout {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			a, err := c.from.Ask(ctx, c.network, c.to)
			if err == nil {
				t.Fatalf("want %s, got an answer: %v", c.want, a)
			}
			if got := FailureOf(err); got != c.want {
				t.Errorf("want %s, got %s: %v", c.want, got, err)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		_, err := w.Client.Ask(ctx, "udp", at("172.30.0.10:80"))
		if err == nil || FailureOf(err) != Canceled {
			t.Errorf("want %s, got %v", Canceled, err)
		}
	})
}

func TestServerClosed(t *testing.T) {
	w := newWorld(t, 1)
	p := w.Pods()[0]
	addr := netip.AddrPortFrom(p.IP4, 81)
	s, err := p.Serve(addr.Port())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := w.Client.Dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 { // the connection stays open between questions
		a, err := conn.Ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if a.Pod != p.Name() || a.Source != conn.Local() {
			t.Errorf("want %s %s, got %v", p.Name(), conn.Local(), a)
		}
	}
	s.Close()
	if _, err := conn.Ask(t.Context()); err == nil || FailureOf(err) != Reset {
		t.Errorf("open connection: want %s, got %v", Reset, err)
	}
	for _, network := range []string{"tcp", "udp"} {
		if _, err := w.Client.Ask(t.Context(), network, addr); err == nil || FailureOf(err) != Refused {
			t.Errorf("new %s connection: want %s, got %v", network, Refused, err)
		}
	}
}

func TestDoSurvivesGoexit(t *testing.T) {
	w := newWorld(t, 0)
	if err := w.Node.Do(func() error { runtime.Goexit(); return nil }); !errors.Is(err, errGoexit) {
		t.Errorf("want %v, got %v", errGoexit, err)
	}
}

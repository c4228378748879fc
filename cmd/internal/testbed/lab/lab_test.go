package lab

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model/nettest"
)

const port = 8080

func TestMain(m *testing.M) { nettest.Main(m) }

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

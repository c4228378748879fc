package life

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model/nettest"
)

func TestNoPortComesAgainSoon(t *testing.T) {
	const soon = 15 * time.Minute
	to := netip.MustParseAddr("172.30.0.10")
	start := time.Unix(1_800_000_000, 0)
	used := map[netip.AddrPort]time.Duration{}
	// One client after the other, each for a minute.
	for began := time.Duration(0); began < 3*soon; began += time.Minute {
		p := newPorts(start.Add(began))
		for n := range 60 * rate {
			at := began + time.Duration(n)*time.Second/rate
			port := p.next(to)
			if before, ok := used[port]; ok && at-before < soon {
				t.Fatalf("%v comes after %v and after %v", port, before, at)
			}
			used[port] = at
		}
	}
}

func TestQuestionsOverUDPComeFromPortsInTurn(t *testing.T) {
	t.Parallel()
	world := newWorld(t)
	for _, ip := range []netip.Addr{world.Pods()[0].IP4, world.Pods()[0].IP6} {
		to := netip.AddrPortFrom(ip, 8080)
		p := newPorts(time.Unix(0, 0))
		for n := range uint16(3) {
			answer, err := ask(t.Context(), Route{"direct", world.Client, "udp", to}, p)
			if err != nil {
				t.Fatal(err)
			}
			if want, got := firstPort+n, answer.Source.Port(); got != want {
				t.Errorf("%v: want a question from port %d, got %d", ip, want, got)
			}
		}
	}
}

// newWorld makes a client and a pod.
func newWorld(t *testing.T) *lab.World {
	t.Helper()
	nettest.Need(t)
	world, err := lab.New(t.Context(), lab.Config{Pods: 1, Ports: []uint16{8080}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Close() })
	return world
}

package life

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

// traffic connects a client to a pod, which ends while connections last if ends, and returns the
// counts.
func traffic(t *testing.T, network string, ends bool, alive func(string) bool) Count {
	t.Helper()
	nettest.Need(t)
	world, err := lab.New(t.Context(), lab.Config{Pods: 1, Ports: []uint16{8080}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Close() })
	pod := world.Pods()[0]
	clients := StartTraffic(t.Context(), []Route{{"direct", world.Client, network, netip.AddrPortFrom(pod.IP4, 8080)}})
	await := func(what string, ok func() bool) {
		t.Helper()
		err := kube.Until(t.Context(), 20*time.Second, what, func() error {
			clients.mu.Lock()
			defer clients.mu.Unlock()
			if !ok() {
				return errors.New(what)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	await("lasting connections ask too little", func() bool { return clients.counts[0].Asked >= 2*lasting })
	if ends {
		if err := pod.Close(); err != nil {
			t.Fatal(err)
		}
		await("a lasting connection does not break", func() bool { return len(clients.breaks[0]) >= lasting })
	}
	return clients.Stop(alive)[0]
}

func always(string) bool { return true }
func never(string) bool  { return false }

func TestNothingIsLostIfNothingHappens(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "udp"} {
		c := traffic(t, network, false, always)
		if c.New == 0 || c.Lost != 0 || c.Broken != 0 || c.Ended != 0 {
			t.Errorf("%s: %+v", network, c)
		}
	}
}

func TestConnectionsToAPodThatEndsAreCounted(t *testing.T) {
	t.Parallel()
	t.Run("before it is deleted", func(t *testing.T) {
		t.Parallel()
		c := traffic(t, "tcp", true, always)
		if c.Lost == 0 || c.Broken != lasting || c.Ended != 0 || len(c.Errors) == 0 {
			t.Errorf("want lost ones and %d broken ones, got %+v", lasting, c)
		}
	})
	t.Run("as it is deleted", func(t *testing.T) {
		t.Parallel()
		c := traffic(t, "tcp", true, never)
		if c.Broken != 0 || c.Ended != lasting {
			t.Errorf("want %d that ended with their pod, got %+v", lasting, c)
		}
	})
}

func TestQuestionsOverUDPWithoutAnswerAreCounted(t *testing.T) {
	t.Parallel()
	if c := traffic(t, "udp", true, always); c.Lost == 0 || c.Broken == 0 {
		t.Errorf("want lost datagrams, got %+v", c)
	}
}

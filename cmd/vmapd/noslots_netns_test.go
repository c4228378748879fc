package main

import (
	"errors"
	"sync"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/nft/kernel"
)

// A packet that holds a verdict whose slots are all gone must reach nobody, least of all a
// process of the node that has the same port.
func TestAPacketWithoutAnySlotReachesNobody(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Cluster", "Local"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, 3, labConfig(), 8080)
			if err := p.Node.Do(func() (err error) { // tables that nft may change
				_ = p.backend.Close()
				p.backend, err = kernel.Open(kernel.Options{Unowned: true})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			p.set(t, append(webSlices([]int{1, 2, 3}), web().Policies("Cluster", policy))...)
			server, err := p.Node.Serve("host", 30080)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			for _, network := range networks {
				to := frontends(familyOf(network))
				if a, err := p.Client.Ask(t.Context(), network, to[len(to)-1]); err != nil || a.Pod == "host" {
					t.Fatalf("%s, with slots: %v answered, %v", network, a, err)
				}
			}
			for _, family := range []string{"ip", "ip6"} {
				for _, set := range []string{"endpoints", "local-endpoints", "nodeport-endpoints", "nodeport-local-endpoints"} {
					if out, err := p.Node.Command(t.Context(), "nft", "flush", "map", family, "vmapd", set).CombinedOutput(); err != nil {
						t.Fatalf("flush map %s: %v: %s", set, err, out)
					}
				}
			}
			var wait sync.WaitGroup
			defer wait.Wait()
			for _, network := range networks {
				for _, to := range frontends(familyOf(network)) {
					wait.Go(func() {
						a, err := p.Client.Ask(t.Context(), network, to)
						if failed, ok := errors.AsType[*lab.ConnectionError](err); !ok || failed.Failure != lab.Timeout {
							t.Errorf("%s to %v, without slots: want a %s, got %q, %v", network, to, lab.Timeout, a.Pod, err)
						}
					})
				}
			}
		})
	}
}

package kernel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func openCounting(t testing.TB, n netns) *Backend {
	t.Helper()
	return openAs(t, Options{NetNS: n.fd(), Counters: true})
}

// A listing that is loaded elsewhere goes on counting from where it was, unless the kernel knows owners. A scrape runs
// next to Apply, and never finds fewer connections than before.
func TestConnectionsAreReadWhileServicesChange(t *testing.T) {
	made, loaded := newNetNS(t), newNetNS(t)
	builder := exampleBuilder()
	apply(t, openCounting(t, made), builder.Snapshot())
	got := withoutOwner(made.nft(t, "", "list", "ruleset"))
	loaded.nft(t, strings.ReplaceAll(got, "tcp . 30080 counter packets 0", "tcp . 30080 counter packets 7"), "-f", "-")
	b := openAs(t, Options{NetNS: loaded.fd(), Unowned: true, Counters: true})
	const services = 2000
	modeltest.Feed(builder, modeltest.Cluster(services, 2))
	apply(t, b, builder.Snapshot())
	web := modeltest.PortName("default/web", "http", model.TCP)
	const first = 7
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for reads := 0; ctx.Err() == nil || reads == 0; reads++ {
			list, err := b.Connections(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			i := slices.IndexFunc(list, func(c Count) bool { return c.Family == model.IPv4 && c.Name == web })
			if len(list) < services || i < 0 || list[i].Connections != first {
				t.Errorf("read %d: %d service ports, want at least %d, of which %v has %d connections", reads, len(list), services, web, first)
				return
			}
			b.Stats(model.IPv4)
		}
	})
	for i := range 60 {
		builder.SetEndpointSlice(exampleSlice("IPv4", 1+i%4))
		name := model.NamespacedName{Namespace: "default", Name: fmt.Sprintf("more-%d", i/2)}
		if i%2 == 0 {
			builder.SetService(model.Service{
				NamespacedName: name, ClusterIPs: []string{fmt.Sprintf("172.29.0.%d", i)}, Ports: []model.Port{{Port: 80}},
			})
		} else {
			builder.DeleteService(name)
		}
		apply(t, b, builder.Snapshot())
	}
	stop()
	reading.Wait()
}

package kernel

import (
	"context"
	"errors"
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

// counts are connections by family and service port.
type counts map[string]uint64

func connections(t testing.TB, b *Backend) counts {
	t.Helper()
	list, err := b.Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return asCounts(t, list)
}

func asCounts(t testing.TB, list []Count) counts {
	t.Helper()
	all := counts{}
	for _, c := range list {
		key := fmt.Sprintf("%v %v/%v", c.Family, c.Name, c.Name.Protocol)
		if _, ok := all[key]; ok {
			t.Errorf("%s is there twice", key)
		}
		all[key] = c.Connections
	}
	return all
}

// A listing that is loaded elsewhere goes on counting from where it was, unless the kernel knows owners.
func TestAListingGoesOnCounting(t *testing.T) {
	made, loaded := newNetNS(t), newNetNS(t)
	s := exampleBuilder().Snapshot()
	apply(t, openCounting(t, made), s)
	got := withoutOwner(made.nft(t, "", "list", "ruleset"))
	loaded.nft(t, strings.ReplaceAll(got, "tcp . 30080 counter packets 0", "tcp . 30080 counter packets 7"), "-f", "-")
	b := openAs(t, Options{NetNS: loaded.fd(), Unowned: true, Counters: true})
	apply(t, b, s)
	if got := connections(t, b)["IPv4 default/web:http/tcp"]; got != 7 {
		t.Errorf("%d connections after loading the listing, want 7", got)
	}
}

// A kernel that can't count is no reason to do without the rest.
func TestWithoutCountersInSetsAllElseIsProgrammed(t *testing.T) {
	n := newNetNS(t)
	b := openCounting(t, n)
	lacks := &UnsupportedError{Feature: "counters", Since: "5.7", Family: "IPv4", Without: "connections are not counted", Err: errors.ErrUnsupported}
	for _, st := range b.families {
		if st.uncountable != nil {
			t.Errorf("probe of %v: %v", st.family, st.uncountable)
		}
		if st.family == model.IPv4 {
			st.uncountable = lacks
		}
	}
	if listing := n.nft(t, "", "list", "ruleset"); listing != "" {
		t.Errorf("the probe left:\n%s", listing)
	}
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	if got := n.nft(t, "", "list", "table", "ip", "vmapd"); strings.Contains(got, "counter") || !strings.Contains(got, "172.30.0.41 . tcp . 80") {
		t.Errorf("IPv4 has counters, or no Service:\n%s", got)
	}
	list, err := b.Connections(t.Context())
	if !errors.Is(err, lacks) || !strings.HasSuffix(err.Error(), "; connections are not counted: unsupported operation") {
		t.Errorf("got error %v, want what is missing", err)
	}
	if len(list) != 3 || list[0].Family != model.IPv6 {
		t.Errorf("got %v, want the three service ports of IPv6", list)
	}
}

// A scrape runs next to Apply, and never finds fewer connections than before.
func TestConnectionsAreReadWhileServicesChange(t *testing.T) {
	n := newNetNS(t)
	n.nowhere(t)
	b := openCounting(t, n)
	builder := exampleBuilder()
	const services = 2000
	modeltest.Feed(builder, modeltest.Cluster(services, 2))
	apply(t, b, builder.Snapshot())
	const connects = 20
	for range connects {
		n.connect(t, "172.30.0.41:80")
	}
	web := model.ServicePortName{NamespacedName: model.NamespacedName{Namespace: "default", Name: "web"}, Port: "http", Protocol: model.TCP}
	first := connections(t, b)["IPv4 default/web:http/tcp"]
	if first < connects {
		t.Fatalf("%d connections are counted, want at least %d", first, connects)
	}
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		last := first
		for reads := 0; ctx.Err() == nil || reads == 0; reads++ {
			list, err := b.Connections(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			i := slices.IndexFunc(list, func(c Count) bool { return c.Family == model.IPv4 && c.Name == web })
			if len(list) < services || i < 0 || list[i].Connections < last {
				t.Errorf("read %d: %d service ports, want at least %d, and %d connections", reads, len(list), services, last)
				return
			}
			last = list[i].Connections
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

// A sum without one of its counters would look as if counting had begun anew.
func TestASumSaysWhetherACounterIsMissing(t *testing.T) {
	packets := packetCounts{"a": 1, "b": 2}
	for _, keys := range [][]string{{"a", "b"}, {"a", "c"}, {"c"}} {
		complete := !slices.Contains(keys, "c")
		if sum, ok := packets.sum(keys); ok != complete || ok && sum != 3 {
			t.Errorf("the sum of %v is %d, complete: %v", keys, sum, ok)
		}
	}
}

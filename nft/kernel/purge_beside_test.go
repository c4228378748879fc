package kernel

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
)

// besides is a backend with a Service whose clients are remembered, and another Service that
// changes all the time.
type besides struct {
	n       netns
	backend *Backend
	builder *model.Builder
	version int // of the other Service
}

const (
	besidesMap       = "affinity-default/many-1/udp/udp"
	besidesEndpoints = 3
)

func newBesides(t testing.TB, clients int, o Options) *besides {
	t.Helper()
	n := newNetNS(t)
	o.NetNS = n.fd()
	s := &besides{n: n, backend: openAs(t, o), builder: model.NewBuilder(model.Config{})}
	manyService(s.builder, 1, besidesEndpoints, true)
	manyService(s.builder, 2, 10, false)
	apply(t, s.backend, s.builder.Snapshot())
	s.note(t, clients)
	return s
}

// note makes the Service remember so many clients, as many for each endpoint.
func (s *besides) note(t testing.TB, clients int) {
	t.Helper()
	list := make([]noted, clients)
	for i := range list {
		list[i] = noted{client: i, lasts: time.Hour, left: time.Hour}
	}
	noteAt(t, s.backend, model.IPv4, besidesMap, list, func(c noted) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(c.client % besidesEndpoints)}), 8080)
	})
}

// apply applies what the builder has, and returns how long that takes.
func (s *besides) apply(t testing.TB) time.Duration {
	t.Helper()
	snapshot, start := s.builder.Snapshot(), time.Now()
	if err := s.backend.Apply(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// changeOther changes the other Service, some hundred times a second, and returns how long that takes.
func (s *besides) changeOther(t testing.TB) time.Duration {
	t.Helper()
	time.Sleep(2 * time.Millisecond)
	s.version++
	manySlice(s.builder, 2, 10, s.version%100)
	return s.apply(t)
}

// replaceEndpoint replaces an endpoint of the Service, and changes the other one until the clients of the endpoint are
// forgotten. It returns how long the change took, how long each change of the other Service took, and how long it was
// until the purge ended.
func (s *besides) replaceEndpoint(t testing.TB, version int) (took time.Duration, others []time.Duration, forgotten time.Duration) {
	t.Helper()
	manySlice(s.builder, 1, besidesEndpoints, version)
	start := time.Now()
	took = s.apply(t)
	purged := make(chan error, 1)
	go func() { purged <- s.backend.Purge(t.Context()) }()
	for {
		select {
		case err := <-purged:
			if err != nil {
				t.Error(err)
			}
			return took, others, time.Since(start)
		default:
			others = append(others, s.changeOther(t))
		}
	}
}

// However many clients are remembered, neither the change of their Service nor that of another one
// waits for them. It took 0.6 s here, and others waited 1.8 s.
func TestNobodyWaitsForSixtyThousandClients(t *testing.T) {
	const clients = 60_000
	s := newBesides(t, clients, Options{})
	took, others, forgotten := s.replaceEndpoint(t, 1)
	longest := slices.Max(append(others, 0))
	t.Logf("the change took %v, until %v later others took %v at most (%d changes)", took, forgotten, longest, len(others))
	if len(others) < 5 {
		t.Errorf("%d changes of another Service while clients were forgotten, want many", len(others))
	}
	// A generous bound, for machines that are busy: a part of the time that it takes to forget them.
	if bound := max(200*time.Millisecond, forgotten/4); took > bound || longest > bound {
		t.Errorf("the change took %v, those of another Service up to %v, want less than %v", took, longest, bound)
	}
	// A list that others change meanwhile lacks some of the clients, see gone-endpoints.
	all := s.n.clients(t, model.IPv4, besidesMap)
	want := clients / besidesEndpoints * (besidesEndpoints - 1)
	if len(all) < want || len(all) > want+clients/10 {
		t.Errorf("%d clients are left, want %d", len(all), want)
	}
}

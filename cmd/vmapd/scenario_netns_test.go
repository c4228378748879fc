package main

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/nft/nftsim"
	"github.com/vmapd/vmapd/sync/manifest"
)

const (
	// patience is how long a connection that should be answered, or refused, may take.
	patience = 3 * time.Second
	// silence is how long nobody must answer where a packet is dropped. Everything in a
	// lab answers within a few milliseconds.
	silence = 250 * time.Millisecond
	// minTries and maxTries bound how often a flow is tried. Two endpoints of three that
	// are alive both stay unseen for 100 tries once in 10^17 runs.
	minTries, maxTries = 8, 100
)

// programs are the ways in which a scenario gets into the node's kernel.
var programs = []struct {
	name string
	load func(t *testing.T, s *scenario, snapshot *model.Snapshot, node *lab.Namespace)
}{
	{"as text, by nft -f", loadByNFT},
	{"over netlink", loadByNetlink},
}

func loadByNFT(t *testing.T, s *scenario, _ *model.Snapshot, node *lab.Namespace) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	text, _ := s.render(t)
	c := node.Command(t.Context(), "nft", "-f", "-")
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("nft -f: %v\n%s", err, out)
	}
}

func loadByNetlink(t *testing.T, _ *scenario, snapshot *model.Snapshot, node *lab.Namespace) {
	t.Helper()
	var backend *kernel.Backend
	err := node.Do(func() (err error) { // its sockets stay in the namespace
		backend, err = kernel.Open(kernel.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := backend.Apply(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
}

// TestScenariosForReal makes each flow's connections in a world of network namespaces.
func TestScenariosForReal(t *testing.T) {
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	for _, s := range scenarios(t) {
		for _, p := range programs {
			t.Run(s.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				snapshot, objects := s.snapshot(t)
				flows := s.flows(t)
				w := newWorld(t, objects, flows)
				p.load(t, s, snapshot, w.Node)
				for _, f := range flows {
					t.Run(f.text, func(t *testing.T) {
						t.Parallel() // waiting for silence is most of the time
						f.connect(t, w)
					})
				}
			})
		}
	}
}

// newWorld builds a world with a server for each endpoint that the flows name. It answers
// with its address and port, so that a wrong port shows, too.
func newWorld(t *testing.T, objects *manifest.Objects, flows []flow) *lab.World {
	t.Helper()
	w, err := lab.New(t.Context(), lab.Config{Pods: podCount})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	// Without this, the kernel answers the first few refused datagrams only.
	for _, s := range []string{"net/ipv4/icmp_ratelimit", "net/ipv6/icmp/ratelimit"} {
		if err := w.Node.Sysctl(s, "0"); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range nodeAddrs(objects) {
		if primary := a.String(); primary != lab.NodeIP4 && primary != lab.NodeIP6 {
			if err := w.Node.AddAddr(lab.UplinkName, netip.PrefixFrom(a, a.BitLen())); err != nil {
				t.Fatal(err)
			}
		}
	}
	serving := map[string]bool{}
	serve := func(addr netip.AddrPort) {
		ns := namespaceOf(w, addr.Addr())
		if ns == nil {
			t.Fatalf("%v is nobody's address in this world", addr.Addr())
		}
		name := fmt.Sprintf("%s:%d", ns.Name(), addr.Port())
		if serving[name] {
			return
		}
		serving[name] = true
		server, err := ns.Serve(name, addr.Port())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
	}
	for _, f := range flows {
		for _, e := range f.endpoints {
			serve(e.addr)
		}
		if dest := namespaceOf(w, f.dest.Addr()); f.want == "elsewhere" && dest != nil && dest != w.Node {
			serve(f.dest) // a pod that is asked directly
		}
	}
	return w
}

// namespaceOf returns whose an address is; nil for what is nobody's in this world.
func namespaceOf(w *lab.World, a netip.Addr) *lab.Namespace {
	switch a.String() {
	case lab.NodeIP4, lab.NodeIP6:
		return w.Node
	case lab.ClientIP4, lab.ClientIP6:
		return w.Client
	}
	for _, p := range w.Pods() {
		if a == p.IP4 || a == p.IP6 {
			return p.Namespace
		}
	}
	return nil
}

// connect makes a flow's connections and checks what becomes of them.
func (f flow) connect(t *testing.T, w *lab.World) {
	t.Helper()
	if f.protocol == model.SCTP {
		t.Skip("SCTP: the lab speaks TCP and UDP, and many kernels have no SCTP; only the simulator runs this flow")
	}
	from := namespaceOf(w, f.from.addr(model.FamilyOf(f.dest.Addr())))
	ask := func(timeout time.Duration) (lab.Answer, error) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return from.Ask(ctx, f.protocol.String(), f.dest)
	}
	switch f.want {
	case "reject":
		for range minTries {
			a, err := ask(patience)
			if err == nil || lab.FailureOf(err) != lab.Refused {
				t.Fatalf("want %s, got answer %+v, error %v", lab.Refused, a, err)
			}
		}
	case "drop":
		if a, err := ask(silence); err == nil || lab.FailureOf(err) != lab.Timeout {
			t.Fatalf("want %s, got answer %+v, error %v", lab.Timeout, a, err)
		}
	case "elsewhere":
		f.connectElsewhere(t, w, ask)
	default:
		f.connectEndpoints(t, w, ask)
	}
}

// connectElsewhere checks that nobody but the destination itself answers, if it is there.
func (f flow) connectElsewhere(t *testing.T, w *lab.World, ask func(time.Duration) (lab.Answer, error)) {
	t.Helper()
	dest := namespaceOf(w, f.dest.Addr())
	if dest == nil || dest == w.Node {
		a, err := ask(silence)
		if err == nil {
			t.Errorf("nobody has this address and port, but %+v answered", a)
		}
		return
	}
	a, err := ask(patience)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s:%d", dest.Name(), f.dest.Port())
	if a.Pod != want || a.Source.Addr() != f.from.addr(model.FamilyOf(f.dest.Addr())) {
		t.Errorf("got %+v, want an answer of %s, which sees the source as it is", a, want)
	}
}

// connectEndpoints connects until each endpoint has answered, and checks that no other
// does and that each sees the right source.
func (f flow) connectEndpoints(t *testing.T, w *lab.World, ask func(time.Duration) (lab.Answer, error)) {
	t.Helper()
	family := model.FamilyOf(f.dest.Addr())
	node := origin{kind: nftsim.Node}.addr(family)
	sources := map[string]netip.Addr{} // what each endpoint must see
	var missing []string
	for _, e := range f.endpoints {
		name := fmt.Sprintf("%s:%d", namespaceOf(w, e.addr.Addr()).Name(), e.addr.Port())
		missing = append(missing, name)
		sources[name] = f.from.addr(family)
		if e.masquerade {
			sources[name] = node
		}
	}
	for try := 0; try < minTries || len(missing) > 0; try++ {
		if try == maxTries {
			t.Fatalf("%v did not answer in %d tries", missing, maxTries)
		}
		a, err := ask(patience)
		if err != nil {
			t.Fatalf("try %d: %v", try+1, err)
		}
		source, ok := sources[a.Pod]
		if !ok {
			t.Fatalf("try %d: %s answered, which is none of the endpoints", try+1, a.Pod)
		}
		if a.Source.Addr() != source {
			t.Errorf("try %d: %s saw the source %v, want %v", try+1, a.Pod, a.Source.Addr(), source)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == a.Pod })
	}
}

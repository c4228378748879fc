package conntrack

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	timo "github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// inside runs a backend's programs in a namespace.
type inside struct {
	*host.IPTables
	node *lab.Namespace
}

func (i inside) Apply(ctx context.Context, s *model.Snapshot) error {
	return i.node.Do(func() error { return i.IPTables.Apply(ctx, s) })
}

// tracked is a world whose node is programmed, and whose flows are cleaned up, as in the
// daemon.
type tracked struct {
	*lab.World
	state   *reconcile.State
	flows   *conntrack.Reconciler
	stop    func()           // ends the programming and the clean-up
	sinks   map[string]*sink // by pod, for UDP 8080
	streams map[string]*stream
}

// newTracked builds a world. With ports, its pods answer there; without, they only listen.
func newTracked(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend, pods int,
	ports ...uint16,
) *tracked {
	t.Helper()
	w := labtest.With(t, lab.Config{Pods: pods, Ports: ports})
	tr := &tracked{World: w, sinks: map[string]*sink{}, streams: map[string]*stream{}}
	for _, p := range w.Pods() {
		if len(ports) == 0 {
			tr.sinks[p.Name()] = newSink(t, p.Namespace, 8080)
		}
	}
	tr.stop = tr.start(t, open)
	return tr
}

// start programs the node, and cleans up its flows, until the test ends or stop is called. The
// objects are none at first.
func (tr *tracked) start(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend,
	objects ...modeltest.Object,
) (stop func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	backend := open(t, tr.Node)
	ns := vmapdtest.NetNS(t, tr.Node)
	table := &conntrack.Table{Dial: func() (*netlink.Conn, error) {
		return netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns})
	}}
	r := conntrack.New(log, table, func(p conntrack.Pass) {
		if p.Err != nil {
			t.Errorf("clean-up of %v flows: %v", p.Family, p.Err)
		}
	})
	builder := modeltest.Builder(vmapdtest.LabConfig(), append(objects, modeltest.OurNode(),
		modeltest.NewServiceCIDR("kubernetes", lab.ClusterIPRange4, lab.ClusterIPRange6))...)
	tr.state, tr.flows = reconcile.NewState(builder, 0), r
	loop := &reconcile.Loop{State: tr.state, Backend: backend, Log: log, Observers: []reconcile.Observer{r}}
	stopLoop, stopFlows := testaid.Run(t, loop.Run), testaid.Run(t, r.Run)
	stop = sync.OnceFunc(func() {
		stopLoop()
		stopFlows()
		if c, ok := backend.(io.Closer); ok {
			_ = c.Close() // its tables are free for the next
		}
	})
	t.Cleanup(stop)
	return stop
}

// set changes objects. What follows from it comes in its own time.
func (tr *tracked) set(objects ...modeltest.Object) {
	tr.state.Update(reconcile.Change{}, func(b *model.Builder) {
		for _, o := range objects {
			o.Set(b)
		}
	})
}

func (tr *tracked) delete(objects ...modeltest.Object) {
	tr.state.Update(reconcile.Change{}, func(b *model.Builder) {
		for _, o := range objects {
			o.Delete(b)
		}
	})
}

// send starts streams, each from a port of its own, and returns their names.
func (tr *tracked) send(t *testing.T, from *lab.Namespace, source [2]string, dests ...netip.AddrPort) []string {
	t.Helper()
	var names []string
	for _, to := range dests {
		const firstPort = 20000
		name := fmt.Sprintf("%s to %v", from.Name(), to)
		addr := netip.MustParseAddr(source[model.FamilyOf(to.Addr())])
		tr.streams[name] = newStream(t, from, name, netip.AddrPortFrom(addr, uint16(firstPort+len(tr.streams))), to)
		names = append(names, name)
	}
	return names
}

// client starts streams from the client.
func (tr *tracked) client(t *testing.T, dests ...netip.AddrPort) []string {
	t.Helper()
	return tr.send(t, tr.Client, [2]string{lab.ClientIP4, lab.ClientIP6}, dests...)
}

// mustArrive waits until enough datagrams of each stream have come in at a sink, and then
// checks that nothing comes in at any other pod's.
func (tr *tracked) mustArrive(t *testing.T, at string, streams []string) {
	t.Helper()
	tr.mustHear(t, tr.sinks[at], streams)
	before := map[string]int{}
	count := func(into map[string]int) {
		for pod, sink := range tr.sinks {
			for _, name := range streams {
				if pod != at {
					into[pod+" hears "+name] = sink.from(name)
				}
			}
		}
	}
	count(before)
	tr.mustHear(t, tr.sinks[at], streams)
	after := map[string]int{}
	count(after)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("what is for %s comes in elsewhere, too (-before +after):\n%s", at, diff)
	}
}

func (tr *tracked) mustHear(t *testing.T, sink *sink, streams []string) {
	t.Helper()
	first := map[string]int{} // of all, which arrive at the same time
	for _, name := range streams {
		first[name] = sink.from(name)
	}
	for _, name := range streams {
		vmapdtest.WaitUntil(t, name+" is heard", func() bool { return sink.from(name) >= first[name]+enough })
	}
}

// mustCease waits until streams, which go on, come in at no pod any more.
func (tr *tracked) mustCease(t *testing.T, streams []string) {
	t.Helper()
	heard := func() (n int) {
		for _, sink := range tr.sinks {
			for _, name := range streams {
				n += sink.from(name)
			}
		}
		return n
	}
	vmapdtest.WaitUntil(t, fmt.Sprint(streams, " are heard no more"), func() bool {
		before, sent := heard(), map[string]int64{}
		for _, name := range streams {
			sent[name] = tr.streams[name].sent.Load()
		}
		for _, name := range streams {
			vmapdtest.WaitUntil(t, name+" goes on", func() bool { return tr.streams[name].sent.Load() >= sent[name]+enough })
		}
		return heard() == before
	})
}

// entries returns the ids of the flows that the node tracks for streams.
func (tr *tracked) entries(t *testing.T) map[string]uint32 {
	t.Helper()
	ids := map[string]uint32{}
	err := tr.Node.Do(func() error {
		c, err := timo.Dial(nil)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		flows, err := c.Dump(nil)
		for _, f := range flows {
			ids[fmt.Sprintf("%v, answered by %v:%d", f.TupleOrig, f.TupleReply.IP.SourceAddress,
				f.TupleReply.Proto.SourcePort)] = f.ID
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

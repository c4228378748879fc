package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/nft/nftfake"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Step is something that happens. The same seed makes the same of it, as far as earlier steps matter.
type Step struct {
	Kind Kind
	Seed uint64
}

// Kind is a kind of steps.
type Kind int

// The kinds of steps. A finding means the same as long as its kinds have their numbers.
const (
	Change  Kind = iota     // of objects, on the server
	Deliver                 // events or a list of one kind arrive
	Relist  Kind = iota + 4 // a watch can't be resumed
	Pass                    // time passes
	Fault                   // some of the next messages will fail
	Storm                   // messages fail for a while
	Kill                    // the daemon dies with a message
	Restart                 // the daemon ends and starts
	Start                   // the daemon starts
	Meddle                  // another program changes the tables
	Packets                 // packets come
	Settle                  // all faults end, and everything arrives
	Refuse                  // the kernel refuses the elements of an address from now on
	numKinds
)

var names = [numKinds]string{ //nolint:gochecknoglobals // never written
	Change: "change", Deliver: "deliver", Relist: "relist", Pass: "pass", Fault: "fault", Storm: "storm", Kill: "kill",
	Restart: "restart", Start: "start", Meddle: "meddle", Packets: "packets", Settle: "settle", Refuse: "refuse",
}

func (k Kind) String() string { return names[k] }

// weights are how often kinds of steps come.
var weights = [numKinds]int{ //nolint:gochecknoglobals // never written
	Change: 30, Deliver: 40, Relist: 2, Pass: 14, Fault: 8, Storm: 1, Kill: 2, Restart: 1, Start: 4, Meddle: 2,
	Packets: 6, Settle: 2, Refuse: 1,
}

// choose makes a random step.
func choose(r *rand.Rand) Step {
	total := 0
	for _, n := range weights {
		total += n
	}
	n := r.IntN(total)
	for k, weight := range weights {
		if n -= weight; n < 0 {
			return Step{Kind(k), r.Uint64()}
		}
	}
	panic("not reached")
}

func (s Step) String() string { return fmt.Sprintf("%v:%x", s.Kind, s.Seed) }

// play makes one step.
func (w *world) play(s Step) {
	w.seeds.Seed(s.Seed, uint64(s.Kind))
	w.note("step %v", s)
	r := w.random
	switch s.Kind {
	case Change:
		for range 1 + r.IntN(3) {
			c := r.Step()
			w.server.change(c)
			w.note("%v", c)
		}
	case Deliver:
		w.withFeed(func(d *daemon, f *feed) { d.deliver(f, 1+r.IntN(4)) })
	case Relist:
		w.withFeed(func(d *daemon, f *feed) { d.list(f) })
	case Pass:
		w.pass(duration(r.Rand))
	case Fault:
		w.plan(r.Rand)
	case Storm:
		w.faulty.Lock()
		w.faults.storm, w.faults.until = rand.New(rand.NewPCG(s.Seed, 2)), time.Now().Add(duration(r.Rand))
		w.faults.rate, w.faults.only = 1+r.IntN(12), nftfake.Fault(r.IntN(len(nftfake.Faults)+1))
		w.faulty.Unlock()
	case Kill:
		w.faulty.Lock()
		w.faults.kill, w.faults.behind = 1+r.IntN(12), r.IntN(2) == 0
		w.faulty.Unlock()
	case Restart:
		w.stop()
		w.start()
	case Start:
		w.start()
	case Meddle:
		w.meddle()
	case Packets:
		w.somePackets()
	case Settle:
		w.settle()
	case Refuse:
		w.refuse(r.Rand)
	case numKinds:
	}
	if s.Seed%4 > 0 { // otherwise the next step may come before the daemon has begun
		w.pass(10 * atRest)
	}
	w.wait()
	w.bury()
}

// duration returns a time that can pass: from nanoseconds to an hour.
func duration(r *rand.Rand) time.Duration {
	most := []time.Duration{
		time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 2 * time.Hour,
	}
	return 1 + time.Duration(r.Int64N(int64(most[r.IntN(len(most))])))
}

// plan makes some of the next messages fail.
func (w *world) plan(r *rand.Rand) {
	w.faulty.Lock()
	defer w.faulty.Unlock()
	w.faults.at = map[int]nftfake.Fault{}
	at := int(w.messages.Load())
	for range 1 + r.IntN(4) {
		at += 1 + r.IntN(10)
		w.faults.at[at] = nftfake.Faults[r.IntN(len(nftfake.Faults))]
	}
}

// refuse makes the kernel refuse elements with one cluster IP. The backend sends the elements of a batch again, one to
// a message, and goes on without the Service with the refused elements.
func (w *world) refuse(r *rand.Rand) {
	const first, addresses = 2, 8 // that Services have, see modeltest.Random
	w.faulty.Lock()
	defer w.faulty.Unlock()
	w.faults.unwanted = []byte{172, 30, 0, byte(first + r.IntN(addresses))}
	w.note("elements of %v are refused", net.IP(w.faults.unwanted))
}

// withFeed does something with one kind of objects, if a daemon runs.
func (w *world) withFeed(do func(*daemon, *feed)) {
	if d := w.daemon; d != nil {
		do(d, d.feeds[w.random.IntN(len(d.feeds))])
		if w.random.IntN(4) == 0 {
			d.readHost()
		}
	}
}

// deliver brings the next events of a kind or, where none can come, a list.
func (d *daemon) deliver(f *feed, most int) {
	if f.at == 0 {
		d.list(f)
		return
	}
	next := d.w.server.after(f.Name, f.at)
	for _, e := range next[:min(most, len(next))] {
		f.event(e)
		d.w.wait()
	}
}

func (d *daemon) list(f *feed) {
	d.w.mu.Lock()
	f.listed = true
	d.w.mu.Unlock()
	f.list(d.w.server.all(f.Name), d.w.server.version)
	d.w.note("%s listed", f.Name)
}

// meddle changes the tables as another program does that has all rights. The kernel may refuse it, and the
// daemon may not notice.
func (w *world) meddle() {
	before := w.kernel.Generation()
	w.looking.Store(true)
	defer w.looking.Store(false)
	options := kernel.Options{Dial: w.dial, Unowned: true}
	other, err := kernel.Open(options)
	if err != nil {
		w.fail("the other program does not start: %w", err)
		return
	}
	if w.random.IntN(2) == 0 {
		err = kernel.RemoveTables(options, nft.TableName)
	} else {
		b := model.NewBuilder(w.node.Config)
		modeltest.NewRandom(modeltest.Seed(w.random.Uint64())).Steps(b, 10)
		err = other.Apply(context.Background(), b.Snapshot())
	}
	w.note("somebody meddles: %v", err)
	_ = other.Close()
	if w.kernel.Generation() == before {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tampered = true
	for i := range w.flows {
		w.flows[i].daemon = 0
	}
	if w.daemon != nil {
		w.daemon.seen = false
	}
	if d := w.daemon; d != nil && w.random.IntN(4) > 0 {
		reconcile.Signal(d.foreign)
	}
}

// somePackets sends packets through the tables.
func (w *world) somePackets() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tampered || w.refused.Load() {
		return
	}
	w.probes = modeltest.NewRandom(modeltest.Seed(w.random.Uint64()))
	for _, f := range model.Families {
		if table, ok := w.read(f); ok {
			w.packets(f, table, connections)
		}
	}
}

package simulate

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// Node says what a life has from the beginning.
type Node struct {
	Config              model.Config
	Before69, Before616 bool // see nftfake.Kernel
	PieceSize           int  // see kernel.Options
}

// newNode chooses a node.
func newNode(r *rand.Rand) Node {
	return Node{
		Config:   modeltest.Configs[r.IntN(len(modeltest.Configs))],
		Before69: r.IntN(3) == 0, Before616: r.IntN(2) == 0,
		PieceSize: []int{0, 1, 5, 20, 60}[r.IntN(5)],
	}
}

// world is a node that lives. The daemon's goroutines use it while the one that plays waits for them.
type world struct {
	node    Node
	wait    func() // until all goroutines have done what they can without the clock
	begin   time.Time
	trace   io.Writer // what happens, line by line
	server  *server
	kernel  *nftfake.Kernel
	eye     *kernel.Backend // looks at the tables, and never changes them
	daemon  *daemon         // nil: none runs
	daemons int             // so far
	// programmed is the number of the last daemon that has applied a snapshot without an error.
	programmed int

	seeds  *rand.PCG // of random, set anew for each step
	random *modeltest.Random

	looking  atomic.Bool  // the eye is at work: messages do not fail
	messages atomic.Int64 // to the kernel
	applying atomic.Bool  // Apply is at work
	refusals int          // messages about elements that were to be refused
	refusing atomic.Int64 // so many further messages about elements may be refused
	refused  atomic.Bool  // one was, since the last Apply that worked
	lacked   atomic.Bool  // a list of elements lacked some
	trouble  atomic.Int64 // how often something failed, or a daemon ended
	noting   sync.Mutex   // guards trace
	faulty   sync.Mutex   // guards faults
	faults   faults       // changed while the daemon is idle, and by kills

	mu       sync.Mutex                           // guards what follows
	between  []*model.Snapshot                    // see allowed
	tampered bool                                 // another program changed the tables; the daemon has not compared yet
	rounds   int                                  // Applies
	is       [len(model.Families)]*model.Snapshot // of which the tables were after the last batch; nil: of none
	readings [len(model.Families)]reading         // the last ones with rules of possible snapshots alone
	checked  [len(model.Families)]uint32          // the generations of the tables that is is about; 0: of none
	probes   *modeltest.Random                    // makes connections
	stale    stale                                // clients of endpoints that are gone
	flows    []flow                               // of connection tracking, the oldest first
	flowID   uint32                               // of the last one
	began    int64                                // trouble at the beginning of the last Apply
	failure  error                                // the first
}

// newWorld makes a world. wait is that of testing/synctest.
func newWorld(n Node, wait func(), trace io.Writer) (*world, error) {
	w := &world{
		node: n, wait: wait, begin: time.Now(), trace: trace,
		server: &server{version: 1000, objects: map[model.ObjectRef]modeltest.Object{}, events: map[string][]event{}},
		kernel: &nftfake.Kernel{OnlyBefore69: n.Before69, OnlyBefore616: n.Before616},
		seeds:  rand.NewPCG(0, 0), between: []*model.Snapshot{nil}, stale: stale{},
	}
	w.random = modeltest.NewRandom(w.seeds)
	w.probes = modeltest.NewRandom(modeltest.Seed(0))
	w.kernel.Fail(w.fault)
	var err error
	w.looking.Store(true)
	w.eye, err = kernel.Open(kernel.Options{Dial: w.dial})
	w.looking.Store(false)
	return w, err
}

// dial opens a connection to the kernel that is not the daemon's.
func (w *world) dial() (kernel.Socket, error) { return w.kernel.Dial(), nil }

// end ends all goroutines.
func (w *world) end() {
	w.stop()
	_ = w.eye.Close()
}

// note adds a line to the trace.
func (w *world) note(format string, args ...any) {
	w.noting.Lock()
	defer w.noting.Unlock()
	_, _ = fmt.Fprintf(w.trace, "%v "+format+"\n", append([]any{time.Since(w.begin)}, args...)...)
}

// fail notes that something does not hold.
func (w *world) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf(format, args...)
		w.note("FAILED: %v", w.failure)
	}
}

// failed returns what does not hold.
func (w *world) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	w.wait()
	w.bury()
}

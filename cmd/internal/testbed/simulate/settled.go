package simulate

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
)

// settleTime is the longest time from the end of all faults until the table is right: the longest pause
// between retries, or between comparisons if somebody changed a table and nobody noticed.
const settleTime = time.Hour + time.Minute

// settle ends all faults, brings everything to the daemon, and waits for the tables.
func (w *world) settle() {
	w.faulty.Lock()
	w.faults = faults{}
	w.faulty.Unlock()
	w.server.change(modeltest.Change{Object: modeltest.OurNode().In("zone-a").Pods("10.0.0.0/29", "fd00:10::/125")})
	if w.server.host == nil {
		w.server.host = []netip.Addr{}
	}
	w.start()
	d := w.daemon
	if d == nil {
		w.fail("the daemon does not start without faults")
		return
	}
	for _, f := range d.feeds {
		for f.at == 0 || len(w.server.after(f.Name, f.at)) > 0 {
			d.deliver(f, 1)
		}
	}
	d.readHost()
	w.pass(2 * time.Minute)
	w.mu.Lock()
	tampered := w.tampered
	w.mu.Unlock()
	if tampered {
		w.pass(settleTime)
	}
	w.mustBeFresh()
	w.mustRest()
}

// mustBeFresh checks that the tables are those of a fresh compilation, and that nothing else is in them.
func (w *world) mustBeFresh() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return
	}
	fresh := model.NewBuilder(w.node.Config)
	for _, o := range w.server.all("") {
		o.Set(fresh)
	}
	fresh.SetHostAddresses(w.server.host)
	s := fresh.Snapshot()
	w.between = []*model.Snapshot{s}
	for _, f := range model.Families {
		table, ok := w.read(f)
		if !ok {
			return
		}
		if b := difference(table, s.Family(f), nil); b != nil {
			w.fail("the %v table is not that of a fresh compilation after the end of all faults; it needs\n%s", f, b)
			return
		}
		if b := leftovers(table, s.Family(f)); !b.Empty() {
			w.fail("the %v table has what nothing needs, after the end of all faults:\n%s", f, b)
			return
		}
		for sp := range s.Family(f).ServicePorts() {
			if why := w.wrongEndpoint(f, sp); why != "" {
				w.fail("the endpoints are wrong: %s", why)
				return
			}
		}
		w.mustHaveEnded(f, s)
		w.packets(f, table, 5*connections)
		w.mustHavePurged(f, s.Family(f))
		if owner, owned := w.kernel.Owner(protocolOf[f], nft.TableName); owned && !w.daemon.ports[owner] {
			w.fail("the %v table is not the daemon's: its owner is %d", f, owner)
		}
	}
	if s := w.daemon.tracker.Status(); !s.Healthy || !s.Ready || !s.Eligible {
		w.fail("the daemon is not ready: %+v", s)
	}
}

// leftovers returns the batch that deletes what a table has for nothing. Chains for numbers of endpoints may stay until
// the next start.
func leftovers(table *nft.Table, s *model.FamilySnapshot) *batch.Batch {
	b := batch.DiffTable(copied(table), retrying.Adopt(table, nil, s))
	b.DeleteChains = slices.DeleteFunc(b.DeleteChains, func(name string) bool {
		return strings.Contains(name, "endpoints-") && !strings.Contains(name, "/") || strings.Contains(name, "-of-")
	})
	return b
}

const (
	restTime = 10 * time.Minute
	// mostSockets are those of a daemon, and of the world's own eye: one for Apply, one to read by.
	mostSockets = 2
)

// mustRest checks that a daemon with nothing to do does nothing: it writes nothing and holds few connections. It
// compares at most once, which it does every hour, and then deletes clients that earlier purges have missed.
func (w *world) mustRest() {
	if w.failed() != nil {
		return
	}
	w.mu.Lock()
	rounds, generation := w.rounds, w.kernel.Generation()
	w.mu.Unlock()
	w.pass(restTime)
	w.mu.Lock()
	defer w.mu.Unlock()
	applies := w.rounds - rounds
	if applies > 1 {
		w.fail("%d Applies in %v in which nothing happened", applies, restTime)
	}
	if n := w.kernel.Generation() - generation; n > 0 && applies == 0 {
		w.fail("%d writes in %v in which nothing happened", n, restTime)
	}
	if n := w.kernel.Sockets() - mostSockets; n > mostSockets {
		w.fail("the daemon holds %d connections", n)
	}
}

package events

// Addresses: cluster IPs 172.30.0.0/16.

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/sync/reconcile"
)

func TestProblemsBecomeEventsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t)
		w.start(t)
		p := &Problems{Recorder: w.Recorder}
		b := model.NewBuilder(modeltest.Config())
		said := 0
		round := func(when string, want ...string) {
			t.Helper()
			p.Done(reconcile.Round{Snapshot: b.Snapshot()})
			time.Sleep(10 * time.Second)
			synctest.Wait()
			got := w.server.lines()[said:]
			said += len(got)
			testaid.Equal(t, when, want, got, cmpopts.EquateEmpty())
		}
		first := modeltest.NewService("ns1/first").On("172.30.0.41").TCP("http", 80)
		second := modeltest.NewService("ns1/second").On("172.30.0.42").TCP("http", 80).External("172.30.0.41")
		second.Created = modeltest.Moment(1)
		first.Set(b)
		second.Set(b)
		const conflict = `POST second: FrontendConflict external IP 172.30.0.41:80/tcp of port "http" belongs to Service ns1/first: it is the cluster IP of that Service`
		round("a contested frontend", conflict)
		round("nothing changed")

		bad := modeltest.NewService("ns1/bad").On("nowhere").TCP("p", 70000)
		bad.Set(b)
		modeltest.NewSlice("ns1/slice", "first").Typed("IPX").Set(b)
		round("bad fields, and a bad slice",
			`POST bad: InvalidField spec.clusterIPs[0]: "nowhere" is not an IP address`,
			"POST bad: InvalidField spec.ports[0].port: 70000 is not between 1 and 65535")

		many := bad.On("172.30.0.43").Sticky(10)
		many.Ports = nil
		for i := range int32(1001) {
			many = many.TCP(fmt.Sprintf("p%d", i), i+1)
		}
		many.Name = "many"
		many.Set(b)
		round("more ports than are served",
			"POST many: OverBudget spec.ports[1000]: more than 1000 ports with session affinity: this one and those after it are not served")
		many.Ports = many.Ports[:1001:1001]
		many.TCP("q", 2000).Set(b)
		round("one more")
		many.Delete(b)

		bad.Delete(b)
		first.Delete(b)
		round("both mended")
		bad.Set(b)
		round("wrong again", "PATCH bad x2", "PATCH bad x2")
		bad.Delete(b)
		first.Set(b)
		round("contested again: the server has the event still", "PATCH second x2")
		if got := len(w.server.events); got != 4 {
			t.Errorf("the server has %d events, want 4", got)
		}
	})
}

// The API server forgets an event an hour after the last write. Of many nodes that see a problem, the one that created
// its event renews it in time, also after a restart. Once it is gone, it is made again.
func TestOnlyTheCreatorRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		bad := modeltest.Snapshot(modeltest.Config(), modeltest.NewService("ns1/bad").On("172.30.0.41").TCP("p", 70000))
		node := func(name string) (stop func()) {
			w := inMemory(t, func(o *Options) { o.NodeName, o.Client = name, server.client(t, "") })
			p := &Problems{Recorder: w.Recorder}
			ends := []func(){w.start(t), testaid.Run(t, p.Run)}
			p.Done(reconcile.Round{Snapshot: bad})
			time.Sleep(time.Minute)
			return func() { ends[0](); ends[1]() }
		}
		in := func(pause time.Duration) map[any]int {
			sent, before := map[any]int{}, len(server.seen())
			time.Sleep(pause)
			synctest.Wait()
			for _, r := range server.seen()[before:] {
				sent[r.Body["reportingInstance"]]++
			}
			return sent
		}
		restart := node("node-1")
		for _, name := range []string{"node-2", "node-3"} {
			node(name)
		}
		if got := len(server.events); got != 1 {
			t.Errorf("the server has %d events of one problem, want 1", got)
		}
		const hours = 10
		in(time.Hour) // in which the others learn that the event is not theirs
		for _, when := range []string{"after an hour", "after a restart of the creator"} {
			got := in(hours * time.Hour)
			if n := got["vmapd-node-1"]; n < hours || n > 2*hours || len(got) > 1 {
				t.Errorf("%s: requests in %d hours: %v, want each hour one or two of node-1 alone", when, hours, got)
			}
			restart()
			node("node-1")
		}
		server.set(func() { clear(server.events) })
		in(time.Hour)
		if got := len(server.events); got != 1 {
			t.Errorf("an hour after the server forgot it, it has %d events, want 1", got)
		}
	})
}

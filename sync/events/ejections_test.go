package events

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// A Service has one event when the first of its endpoints is ejected, and one when none is any more, whatever happens between.
func TestEjectionsBecomeEventsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t)
		w.start(t)
		e := &Ejections{Recorder: w.Recorder}
		config := modeltest.Config()
		config.OutlierDetection = true
		web := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80)
		slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")
		b := modeltest.Builder(config, modeltest.OurNode(), web, slice,
			modeltest.NewService("ns1/one").On("172.30.0.42").TCP("http", 80), modeltest.NewSlice("ns1/one-1", "one").TCP("http", 9090).Ready("10.0.0.9"))
		said := 0
		round := func(when string, want ...string) {
			t.Helper()
			e.Done(reconcile.Round{Snapshot: b.Snapshot()})
			time.Sleep(10 * time.Second)
			synctest.Wait()
			got := w.server.lines()[said:]
			said += len(got)
			if diff := cmp.Diff(want, got, cmp.Transformer("", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", when, diff)
			}
		}
		eject := func(endpoints ...string) {
			now := &model.Ejections{}
			for _, a := range endpoints {
				now.Endpoints = append(now.Endpoints, model.Ejection{Endpoint: netip.MustParseAddrPort(a)})
			}
			b.SetEjections(now)
		}
		round("nothing is silent")
		eject("10.0.0.2:8080", "10.0.0.9:9090") // all of the other Service: it is not ejected
		round("an endpoint is silent", `POST web: EndpointsEjected 10.0.0.2:8080 of port "http" did not answer clients, nor this node: `+
			"new connections go to other endpoints")
		round("nothing changed")
		eject("10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.9:9090")
		round("a second one")
		eject("10.0.0.3:8080")
		round("one returns")
		eject()
		round("all return", "POST web: EndpointsReturned all endpoints get connections again")
		eject("10.0.0.4:8080")
		round("another one", "POST web: EndpointsEjected 10.0.0.4:8080 of port \"http\" did not answer clients, nor this node: "+
			"new connections go to other endpoints")
		web.Delete(b)
		slice.Delete(b)
		round("the Service is deleted")
		if len(e.ports) > 0 {
			t.Errorf("it remembers %v", e.ports)
		}
	})
}

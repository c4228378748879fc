package informer

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer/apitest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// crowd is how many nodes follow one API server that restarts.
const crowd = 500

// An API server that restarts is asked by each node to continue the watches, and for no object that the node has.
func TestACrowdContinuesAfterARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	s := standardServer(t, apitest.Options{Secure: true})
	kubeconfig := kubeconfig(t, s, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	var sources sync.WaitGroup
	defer sources.Wait()
	defer cancel()
	for range crowd {
		client, err := Connect(Config{Kubeconfig: kubeconfig})
		if err != nil {
			t.Fatal(err)
		}
		source := &Source{Client: client, NodeName: "node1", Log: slog.New(slog.DiscardHandler)}
		state := reconcile.NewState(model.NewBuilder(model.Config{NodeName: "node1"}), 1)
		sources.Go(func() {
			if err := source.Run(ctx, state); err != nil {
				t.Error(err)
			}
		})
	}
	all := func() bool {
		for _, r := range everything {
			if s.Watching(r) < crowd {
				return false
			}
		}
		return true
	}
	await(t, all)
	time.Sleep(2 * works)
	out(t, s, apitest.Refusing)
	time.Sleep(5 * time.Second)
	before := len(s.Requests(""))
	out(t, s, apitest.Up)
	await(t, all)
	kinds := map[string]float64{}
	for _, q := range s.Requests("")[before:] {
		kinds[kindOf(q)] += 1. / crowd
	}
	for kind, n := range kinds {
		t.Logf("%.2f requests a client: %s", n, kind)
	}
	const few = 0.05 // client-go lists from the cache after a connection that broke in an odd way
	if kinds["list from etcd"] > 0 || kinds["list from the cache"] > few {
		t.Error("objects are listed again")
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not happen")
		}
	}
}

// kindOf says what a request costs the server.
func kindOf(q apitest.Request) string {
	query := q.URL.Query()
	streamed, from := query.Get("sendInitialEvents") != "", query.Get("resourceVersion")
	switch {
	case q.Verb == "watch" && !streamed:
		return "watch from a version"
	case from == "":
		return "list from etcd"
	}
	return "list from the cache"
}

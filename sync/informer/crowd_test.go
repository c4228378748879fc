package informer

import (
	"context"
	"log/slog"
	"strings"
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
	s := standardServer(t, secure)
	kubeconfig := kubeconfig(t, s, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	var sources sync.WaitGroup
	defer sources.Wait()
	defer cancel()
	for range crowd {
		client, err := Connect(Config{Kubeconfig: kubeconfig})
		must(t, err)
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

// kindOf says what a request costs the server.
func kindOf(q apitest.Request) string {
	streamed, from := q.Query.Get("sendInitialEvents") != "", q.Query.Get("resourceVersion")
	switch {
	case q.Watch && !streamed:
		return "watch from a version"
	case from == "":
		return "list from etcd"
	case strings.Contains(q.Query.Get("fieldSelector"), "metadata.name=") && !streamed:
		return "one object from the cache"
	}
	return "list from the cache"
}

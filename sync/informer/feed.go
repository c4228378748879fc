package informer

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Feed writes one kind of objects into a state as a [Source] does, without requests, goroutines and a
// clock: lists and events are handed to it. It is for simulations. It is not safe for concurrent use.
type Feed struct {
	Name   string // of the kind, plural, as in URLs
	health *health
	store  *store
	stream *stream // nil: List comes next
}

// Feeds returns a feed for each kind that the proxy of a node reads. Each calls delivered after its
// first list.
func Feeds(node string, state *reconcile.State, delivered func()) []*Feed {
	var all []*Feed
	for _, r := range resources(new(client.Client), node) {
		h := &health{
			log: slog.New(slog.DiscardHandler), of: r, giveUp: func() {}, report: func(Failure) {}, heard: new(atomic.Int64),
		}
		all = append(all, &Feed{Name: r.name, health: h, store: newStore(r, state, delivered)})
	}
	return all
}

// List replaces all objects by those of a list, and begins a watch from its version.
func (f *Feed) List(ctx context.Context, l runtime.Object) error {
	read, err := f.store.listed(l)
	if err != nil {
		return err
	}
	items := make([]any, len(read.Items))
	for i, o := range read.Items {
		items[i] = o
	}
	f.health.took(ctx, read.ResourceVersion)
	from, ok := parseVersion(read.ResourceVersion)
	if !ok {
		return errNoList
	}
	f.stream = &stream{health: f.health, into: f.store, newest: from}
	return f.store.Replace(items, read.ResourceVersion)
}

// Event takes an event of the watch. After an error, the watch is over, and List comes next.
func (f *Feed) Event(ctx context.Context, e watch.Event) error {
	if f.stream == nil {
		return fmt.Errorf("no list of %s precedes the event", f.Name)
	}
	e, problem := f.stream.check(ctx, e)
	if problem == nil && e.Type == watch.Error {
		problem = apierrors.FromObject(e.Object)
	}
	if problem != nil {
		f.stream = nil
		return problem
	}
	o, ok := f.store.later(e).Object.(*object)
	if !ok {
		return fmt.Errorf("watch of %s has a %T", f.Name, e.Object)
	}
	switch e.Type {
	case watch.Added:
		return f.store.Add(o)
	case watch.Modified:
		return f.store.Update(o)
	case watch.Deleted:
		return f.store.Delete(o)
	case watch.Bookmark, watch.Error:
	}
	return nil
}

// Resume continues with another watch from the version that the feed knows.
func (f *Feed) Resume() {
	if f.stream != nil {
		f.stream = &stream{health: f.health, into: f.store, newest: f.stream.newest}
	}
}

// Version returns the version from which a watch continues; 0: List comes next.
func (f *Feed) Version() uint64 {
	if f.stream == nil {
		return 0
	}
	return f.stream.newest
}

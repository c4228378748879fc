package informer

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/sync/informer/apitest"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// A server that ends no streamed list with the bookmark, or does not answer the request for one, is asked for plain
// lists after a while. The log and Failing have what is missing before.
func TestAServerWithoutTheBookmarkIsAskedForPlainLists(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]apitest.Fault{"objects and no bookmark": apitest.NoBookmark, "no response": apitest.Silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := standardServer(t, apitest.Options{})
			spoil(s, fault)
			w := followAs(t, s, &Source{quiet: time.Second})
			w.fails(everything...)
			w.until("the source knows", func() bool { return len(w.source.Failing()) == len(everything) })
			for _, f := range w.source.Failing() {
				if !f.Silent() || !slices.Contains(w.source.Unread(), f.Resource) {
					t.Errorf("%s fails with %v; unread are %v", f.Resource, f.Err, w.source.Unread())
				}
			}
			if fault == apitest.Silent {
				w.until("plain lists", func() bool { return w.logs.Count("requesting plain lists from now on") == len(everything) })
				spoil(s, apitest.NoFault)
			}
			w.want(whole...)
			w.watching()
			w.until("recovery", func() bool { return len(w.source.Failing()) == 0 && len(w.source.Unread()) == 0 })

			// Everything is read again, now at once by plain lists.
			before := len(streamed(s))
			s.Expire()
			s.Set(slice("web", "10.180.2.1"))
			w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
			if after := len(streamed(s)); after != before {
				t.Errorf("%d more requests for streamed lists", after-before)
			}
		})
	}
}

// streamed returns the requests for streamed lists.
func streamed(s *apitest.Server) []apitest.Request {
	return slices.DeleteFunc(s.Requests(""), func(r apitest.Request) bool { return r.URL.Query().Get("sendInitialEvents") == "" })
}

func TestPlainListsFromTheStart(t *testing.T) {
	t.Parallel()
	s := standardServer(t, apitest.Options{})
	w := followAs(t, s, &Source{Plain: true})
	w.want(whole...)
	w.watching()
	if got := streamed(s); len(got) > 0 {
		t.Errorf("%d requests for streamed lists, as %v", len(got), got[0].URL)
	}
}

// quietFollower is one of Nodes, without a server.
func quietFollower(logs *testlog.Log) *follower {
	source := &Source{Log: slog.New(slog.NewTextHandler(logs, nil))}
	state := reconcile.NewState(model.NewBuilder(model.Config{NodeName: "node1"}), 1)
	return newFollower(resources(new(client.Client), "node1")[2], source, state, func() {})
}

// quietWatch is a streamed list of Nodes that a test fills.
func quietWatch(t *testing.T) (*watch.RaceFreeFakeWatcher, watch.Interface, *follower, *testlog.Log) {
	t.Helper()
	logs := &testlog.Log{}
	f, w := quietFollower(logs), watch.NewRaceFreeFake()
	f.resource.watch = func(context.Context, metav1.ListOptions) (watch.Interface, error) { return w, nil }
	s, err := f.watch(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return w, s, f, logs
}

// The first warning comes after ten seconds without an object, and the end of the stream after thirty. A list that
// takes long is left alone, and a few changes of a busy cluster are no list.
func TestWhenAStreamedListIsGivenUp(t *testing.T) {
	for _, tt := range []struct {
		name  string
		each  int // objects a second
		warns bool
		ends  time.Duration // 0: it goes on
	}{
		{"nothing", 0, true, 30 * time.Second},
		{"a busy cluster without the bookmark", 1, true, 30 * time.Second},
		{"a long list", 20, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s, f, logs := quietWatch(t)
				start := time.Now()
				go func() {
					for second := range 60 {
						time.Sleep(time.Second)
						for i := range tt.each {
							w.Add(node(fmt.Sprintf("n%d-%d", second, i), "192.168.0.9"))
						}
					}
				}()
				var ended time.Duration
				go func() {
					for range s.ResultChan() {
					}
					ended = time.Since(start)
				}()
				time.Sleep(9 * time.Second)
				synctest.Wait()
				if got := logs.Count("ERROR"); got > 0 {
					t.Errorf("logged too early:\n%s", logs)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if got := logs.Count("ERROR", "no bookmark"); (got == 1) != tt.warns {
					t.Errorf("logged %d times:\n%s", got, logs)
				}
				time.Sleep(50 * time.Second)
				synctest.Wait()
				if ended != tt.ends || f.unstreamed.Load() != (tt.ends > 0) {
					t.Errorf("ended after %v, want %v; plain lists from now on: %v", ended, tt.ends, f.unstreamed.Load())
				}
			})
		})
	}
}

// That a server can't stream lists is no failure: they are read as plain ones at once.
func TestAServerThatCannotStreamLists(t *testing.T) {
	w, s, _, logs := quietWatch(t)
	w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "the required storage feature is disabled"})
	if e := <-s.ResultChan(); e.Type != watch.Error || logs.Count() > 0 {
		t.Errorf("client-go is told %v; the log has:\n%s", e, logs)
	}
}

// An older event after a newer one is an error for which client-go lists again, be it about another object, or after the
// list. The same event twice is none.
func TestDisorder(t *testing.T) {
	w, s, _, logs := quietWatch(t)
	at := func(version, bookmark string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "node" + version, ResourceVersion: version, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: bookmark},
		}}
	}
	w.Add(at("7", ""))
	w.Add(at("5", ""))
	w.Action(watch.Bookmark, at("8", "true"))
	for _, version := range []string{"10", "10", "9"} {
		w.Modify(at(version, ""))
	}
	var got []watch.EventType
	for range 6 {
		got = append(got, (<-s.ResultChan()).Type)
	}
	want := []watch.EventType{watch.Added, watch.Added, watch.Bookmark, watch.Modified, watch.Modified, watch.Error}
	if diff := cmp.Diff(want, got); diff != "" || logs.Count("ERROR", "out of order; listing again") != 1 {
		t.Errorf("client-go is told (-want +got):\n%s\nlogged:\n%s", diff, logs)
	}
}

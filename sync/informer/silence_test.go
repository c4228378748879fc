package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/sync/informer/apitest"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// A server that ends no streamed list with the bookmark is asked for a plain list after a while, and for a streamed one
// the next time. One that does not answer is waited for. The log and Failing have what is missing before.
func TestAServerWithoutTheBookmarkIsAskedForAPlainList(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]apitest.Fault{"objects and no bookmark": apitest.NoBookmark, "no response": apitest.Silent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := standardServer(t, apitest.Options{})
			spoil(s, fault)
			w := followAs(t, s, &Source{quiet: time.Second})
			w.fails(everything...)
			if fault == apitest.Silent {
				w.until("the source knows", func() bool { return len(w.source.Failing()) == len(everything) })
				for _, f := range w.source.Failing() {
					silent := errors.Is(f.Err, errSilent) || errors.Is(f.Err, errNoBookmark)
					if !silent || !slices.Contains(w.source.Unread(), f.Resource) {
						t.Errorf("%s fails with %v; unread are %v", f.Resource, f.Err, w.source.Unread())
					}
				}
				spoil(s, apitest.NoFault)
			}
			w.want(whole...)
			w.watching()
			w.until("recovery", func() bool { return len(w.source.Failing()) == 0 && len(w.source.Unread()) == 0 })

			spoil(s, apitest.NoFault)
			before := len(streamed(s))
			s.Expire()
			s.Set(slice("web", "10.180.2.1"))
			w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
			w.until("streamed lists", func() bool { return len(streamed(s)) >= before+len(everything) })
			w.recovers(everything...)
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
	return newFollower(resources(new(client.Client), "node1")[1], source, state, func() {})
}

// A plain list is requested thirty seconds after the response, or after the last objects. An overloaded server may take
// long to answer, and a list may take long; a few changes of a busy cluster are no list. That a server can't stream
// lists is no failure.
func TestWhenAStreamedListIsGivenUp(t *testing.T) {
	const never = 0
	for _, tt := range []struct {
		name     string
		response time.Duration
		each     int // objects a second
		events   func(*watch.RaceFreeFakeWatcher)
		plain    time.Duration
		errors   int
	}{
		{"nothing", 0, 0, nil, 30 * time.Second, 1},
		{"a busy cluster without the bookmark", 0, 1, nil, 30 * time.Second, 1},
		{"a long list", 0, 20, nil, never, 0},
		{"a late response", 35 * time.Second, 0, complete, never, 1},
		{"a server that can't stream", 0, 0, func(w *watch.RaceFreeFakeWatcher) {
			w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "the required storage feature is disabled"})
		}, time.Nanosecond, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs := &testlog.Log{}
				f, start, plain := quietFollower(logs), time.Now(), time.Duration(never)
				f.resource.watch = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					w := watch.NewRaceFreeFake()
					context.AfterFunc(ctx, w.Stop)
					if o.SendInitialEvents == nil {
						return w, nil
					}
					time.Sleep(tt.response)
					if tt.events != nil {
						tt.events(w)
					}
					go func() {
						for second := range 50 {
							time.Sleep(time.Second)
							for i := range tt.each {
								w.Add(node(fmt.Sprintf("n%d-%d", second, i), "192.168.0.9"))
							}
						}
					}()
					return w, nil
				}
				f.resource.list = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					plain = max(time.Since(start), time.Nanosecond)
					return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				go f.run(ctx)
				time.Sleep(55 * time.Second)
				synctest.Wait()
				cancel()
				time.Sleep(time.Minute) // until nothing adds objects
				if plain != tt.plain || logs.Count("ERROR") != tt.errors {
					t.Errorf("plain list after %v, want %v; %d errors, want %d:\n%s", plain, tt.plain, logs.Count("ERROR"), tt.errors, logs)
				}
			})
		})
	}
}

// complete ends a streamed list without objects.
func complete(w *watch.RaceFreeFakeWatcher) {
	w.Action(watch.Bookmark, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
}

// Before the first list, requests repeat soon: rules wait for it. Afterwards, a change waits for 20 s at most.
func TestAServerThatComesLate(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://192.0.2.1", Err: syscall.ECONNREFUSED}
	for _, away := range []time.Duration{20 * time.Second, 130 * time.Second} {
		for _, start := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				f := quietFollower(&testlog.Log{})
				since := time.Now()
				isAway := func() bool { return time.Since(since) < away && (start || time.Since(since) > time.Second/2) }
				var answered time.Time
				f.resource.list = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					if isAway() {
						return nil, refused
					}
					answered = time.Now()
					return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
				}
				f.resource.watch = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					if isAway() {
						return nil, refused
					}
					if o.SendInitialEvents != nil {
						return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil) // it has plain lists alone
					}
					answered = time.Now()
					w := watch.NewRaceFreeFake()
					context.AfterFunc(ctx, w.Stop)
					if !start && time.Since(since) < away {
						time.AfterFunc(time.Second, w.Stop)
					}
					return w, nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				go f.run(ctx)
				time.Sleep(away + 30*time.Second)
				cancel()
				synctest.Wait()
				most := 2 * laterPause
				if start {
					most = 5 * time.Second
				}
				if late := answered.Sub(since) - away; late < 0 || late > most {
					t.Errorf("away for %v, at the start %v: asked again %v later, want at most %v", away, start, late, most)
				}
			})
		}
	}
}

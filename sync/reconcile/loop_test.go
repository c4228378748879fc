package reconcile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// fakeBackend notes what it is told, and fails while err is set.
type fakeBackend struct {
	mu      sync.Mutex
	err     error
	takes   time.Duration
	applied []*model.Snapshot
	at      []time.Time
	resyncs int
}

func (b *fakeBackend) Apply(_ context.Context, s *model.Snapshot) error {
	time.Sleep(b.takes)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.applied = append(b.applied, s)
	b.at = append(b.at, time.Now())
	return b.err
}

func (b *fakeBackend) Resync() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resyncs++
}

func (b *fakeBackend) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *fakeBackend) rounds() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.applied)
}

// last returns what was applied last.
func (b *fakeBackend) last() *model.Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.applied[len(b.applied)-1]
}

func service(i int) model.Service {
	return model.Service{
		NamespacedName: model.NamespacedName{Namespace: "default", Name: "web"},
		ClusterIPs:     []string{"172.30.0.41"}, Ports: []model.Port{{Port: int32(i)}},
	}
}

// start runs a loop in a bubble of fake time until the test ends.
func start(t *testing.T, sources int, b *fakeBackend, with ...func(*Loop)) (*State, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s := NewState(model.NewBuilder(model.Config{}), sources)
	l := &Loop{State: s, Backend: b, Log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, set := range with {
		set(l)
	}
	testaid.Run(t, l.Run)
	return s, &log
}

// A change may be what mends a failure: it does not wait for the next try.
func TestAFailedRoundIsRetriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBackend{err: errors.New("no")}
		s, log := start(t, 0, b)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		// 0.1 s, 0.2 s, … 25.6 s, then every 30 s, with a tenth of jitter.
		if got := b.rounds(); got < 20 || got > 40 {
			t.Errorf("%d rounds in ten minutes, want about 27", got)
		}
		if gap := b.at[1].Sub(b.at[0]); gap > 150*time.Millisecond {
			t.Errorf("first retry after %v, want about 100ms", gap)
		}
		b.fail(nil)
		changed := time.Now() // retries are 30 s apart by now
		s.Update(Change{}, func(b *model.Builder) { b.SetService(service(81)) })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		rounds := b.rounds()
		if last := b.at[rounds-1]; last.Before(changed) {
			t.Errorf("no round within two seconds of the change")
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := b.rounds(); got != rounds {
			t.Errorf("%d more rounds after it worked, want none", got-rounds)
		}
		if got := log.String(); !strings.Contains(got, "sync failed") || !strings.Contains(got, "ready") {
			t.Errorf("the log should tell of the failure and of being ready:\n%s", got)
		}
		// A second failure is like the first.
		b.fail(errors.New("no"))
		s.Update(Change{}, func(b *model.Builder) { b.SetService(service(80)) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if gap := b.at[rounds+1].Sub(b.at[rounds]); gap > 150*time.Millisecond {
			t.Errorf("first retry of the second failure after %v, want about 100ms", gap)
		}
		if got := strings.Count(log.String(), "sync failed"); got != 2 {
			t.Errorf("%d failures are in the log, want 2:\n%s", got, log)
		}
	})
}

func TestAProblemIsLoggedOnceAndWhenItIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBackend{}
		s, log := start(t, 0, b)
		for _, change := range []func(*model.Builder){
			func(b *model.Builder) { b.SetService(service(0)) },
			func(b *model.Builder) {
				b.SetServiceCIDR(model.ServiceCIDR{Name: "kubernetes", CIDRs: []string{"172.30.0.0/16"}})
			},
			func(b *model.Builder) { b.SetService(service(80)) },
		} {
			s.Update(Change{}, change)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		const problem = "Service default/web: spec.ports[0].port: 0 is not between 1 and 65535"
		if got := strings.Count(log.String(), problem); got != 2 {
			t.Errorf("%q is in the log %d times, want 2: when it came and when it went\n%s", problem, got, log)
		}
		if !strings.Contains(log.String(), "no longer a problem") {
			t.Errorf("nothing says that it is mended:\n%s", log)
		}
	})
}

// foreignChange gives a loop a channel for foreign changes of the dataplane.
func foreignChange() (chan struct{}, func(*Loop)) {
	c := make(chan struct{}, 1)
	return c, func(l *Loop) { l.ForeignChange = c }
}

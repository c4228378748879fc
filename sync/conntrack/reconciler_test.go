package conntrack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// bench is a Reconciler at work in fake time, on a table that notes passes and may fail.
type bench struct {
	*Reconciler
	*cluster
	start time.Time
	log   bytes.Buffer

	mu       sync.Mutex
	err      error
	takes    time.Duration
	passes   []string // "1s IPv4"
	reported []Pass
}

func newBench(t *testing.T, objects ...modeltest.Object) *bench {
	t.Helper()
	b := &bench{cluster: newCluster(objects...), start: time.Now()}
	b.Reconciler = New(slog.New(slog.NewTextHandler(&b.log, nil)), new(Table), func(p Pass) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reported = append(b.reported, p)
	})
	b.sweep = func(ctx context.Context, of model.Family, _ Filter, _ func(*Flow) bool) (int, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		pass := fmt.Sprintf("%v %v", time.Since(b.start), of)
		if n := len(b.passes); n == 0 || b.passes[n-1] != pass { // it may list more than once
			b.passes = append(b.passes, pass)
		}
		select {
		case <-ctx.Done():
		case <-time.After(b.takes):
		}
		return 3, b.err
	}
	testaid.Run(t, b.Run)
	return b
}

// apply tells of a round.
func (b *bench) apply(failed ...model.Family) {
	r := reconcile.Round{Snapshot: b.Snapshot()}
	for _, f := range failed {
		r.Err, r.Failed[f] = errors.New("no"), true
	}
	b.Done(r)
}

func (b *bench) want(t *testing.T, passes ...string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	testaid.Equal(t, "passes", passes, b.passes)
	b.passes = nil
}

func (b *bench) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *bench) reports() []Pass {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reported
}

// ip is a Service with one UDP frontend in IPv4.
func ip(n int) modeltest.Service {
	return modeltest.NewService(fmt.Sprintf("ns/s%d", n)).On(fmt.Sprintf("172.30.0.%d", n)).UDP("p", 53).TCP("tcp", 53)
}

func TestPassesFollowChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ip(1), ip(2), ip(3))
		b.want(t)
		b.apply()
		b.want(t, "0s IPv4", "0s IPv6") // the first at once, of everything
		time.Sleep(10 * time.Second)
		b.apply() // nothing new
		b.want(t)
		set(b.cluster, ip(4))
		b.apply()
		b.want(t, "10s IPv4")            // at once
		time.Sleep(time.Millisecond / 2) // no change is due together with a pass
		for i := range 100 {
			set(b.cluster, ip(10+i))
			b.apply()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second - time.Millisecond/2)
		b.want(t, "10.05s IPv4", "10.1s IPv4") // then with a pause, which collects work
		s := ip(4)
		s.ClusterIPs = []string{"172.30.0.5"}
		set(b.cluster, s)
		ip(10).Delete(b.Builder)
		b.apply()
		time.Sleep(2 * time.Second)
		b.want(t, "11.1s IPv4")
		modeltest.NewService("ns/tcp").On("172.30.0.200").TCP("p", 80).Set(b.Builder)
		b.apply()
		time.Sleep(2 * time.Second)
		b.want(t) // TCP has no grace period
		time.Sleep(2 * time.Hour)
		b.want(t, "1h0m0s IPv4", "1h0m0s IPv6", "2h0m0s IPv4", "2h0m0s IPv6") // everything
	})
}

func TestPausesAreAsLongAsPasses(t *testing.T) {
	for _, c := range []struct{ takes, next time.Duration }{
		{0, 50 * time.Millisecond},
		{10 * time.Millisecond, 100 * time.Millisecond}, // a tenth of the time
		{100 * time.Millisecond, time.Second},
		{time.Second, 2 * time.Second}, // the interval is the longest pause
	} {
		t.Run(c.takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, ip(1))
				b.apply()
				time.Sleep(10 * time.Second)
				b.want(t, "0s IPv4", fmt.Sprintf("%v IPv6", b.takes))
				b.takes = c.takes
				set(b.cluster, ip(2))
				b.apply()
				synctest.Wait()
				set(b.cluster, ip(3))
				b.apply() // does not wait for the pass
				testaid.Equal(t, "time", 10*time.Second, time.Since(b.start))
				time.Sleep(10 * time.Second)
				b.want(t, "10s IPv4", fmt.Sprintf("%v IPv4", 10*time.Second+c.next))
				testaid.Equal(t, "the last report", Pass{Took: c.takes, Deleted: 3}, b.reports()[3])
			})
		})
	}
}

func TestNothingIsLookedAtBeforeSomethingIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ip(1))
		time.Sleep(2 * time.Hour)
		b.want(t)
		b.apply(model.IPv6)
		b.want(t, "2h0m0s IPv4")
		time.Sleep(time.Minute)
		ip(1).Delete(b.Builder)
		b.apply(model.IPv4)
		b.want(t, "2h1m0s IPv6") // IPv4 still forwards: its flows stay
		time.Sleep(time.Minute)
		b.apply()
		b.want(t, "2h2m0s IPv4")
	})
}

func TestAFailureIsSaidOnceAndDoneAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, ip(1))
		b.apply()
		b.want(t, "0s IPv4", "0s IPv6")
		time.Sleep(time.Minute)
		b.fail(errors.New("no such thing"))
		set(b.cluster, ip(2))
		b.apply()
		time.Sleep(10 * time.Second)
		set(b.cluster, ip(3))
		b.apply() // waits like the others
		time.Sleep(90 * time.Second)
		b.want(t, "1m0s IPv4", "1m10s IPv4", "1m20s IPv4", "1m30s IPv4", "1m40s IPv4", "1m50s IPv4",
			"2m0s IPv4", "2m10s IPv4", "2m20s IPv4", "2m30s IPv4", "2m40s IPv4")
		if got := b.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "no such thing") {
			t.Errorf("want one line about it, got:\n%s", got)
		}
		if p := b.reports()[len(b.reports())-1]; p.Err == nil || p.Family != model.IPv4 {
			t.Errorf("reported %+v, want the error", p)
		}
		b.fail(nil)
		time.Sleep(time.Minute)
		b.want(t, "2m50s IPv4")
		if got := b.log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "again") {
			t.Errorf("want one line about its end, got:\n%s", got)
		}
		set(b.cluster, ip(4))
		b.apply()
		b.want(t, "3m40s IPv4")
	})
}

// When the time of connections is over, nothing else happens.
func TestTheGraceWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := graceful(modeltest.NewService("ns/tcp").On("172.30.0.1").TCP("p", 80))
		pods := func(addrs ...string) modeltest.Slice {
			return modeltest.NewSlice("ns/tcp-4", "tcp").TCP("p", 80).Ready(addrs...)
		}
		b := newBench(t, s, pods("10.0.0.1", "10.0.0.2", "10.0.0.3"))
		b.apply()
		b.want(t, "0s IPv4", "0s IPv6")
		time.Sleep(10 * time.Minute)
		b.want(t, "30s IPv4") // connections from before are unknown
		set(b.cluster, pods("10.0.0.1", "10.0.0.2"))
		b.apply()
		time.Sleep(10 * time.Second)
		set(b.cluster, pods("10.0.0.1"))
		b.apply()
		b.fail(errors.New("not now"))
		time.Sleep(22 * time.Second)
		b.fail(nil)
		time.Sleep(10 * time.Minute)
		b.want(t, "10m30s IPv4", "10m40s IPv4")
	})
}

// A pass follows a repair at once. While the kernel lists flows, rounds go on: each flow is judged by what is known then.
func TestPassesAndRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, append(dnsSlices(nil, 2), dns())...)
		b.apply()
		b.want(t, "0s IPv4", "0s IPv6")
		repair := func(failed ...model.Family) {
			time.Sleep(10 * time.Second)
			r := reconcile.Round{Snapshot: b.Snapshot(), Full: true, Repair: true}
			for _, f := range failed {
				r.Failed[f] = true
			}
			b.Done(r)
		}
		repair()
		b.want(t, "10s IPv4", "10s IPv6")
		repair(model.IPv4)
		b.want(t, "20s IPv6") // IPv4 has no rules yet
		var stale []bool
		b.sweep = func(_ context.Context, of model.Family, _ Filter, judge func(*Flow) bool) (int, error) {
			if of == model.IPv4 {
				f := parse(t, "udp 172.30.0.10:53 from 10.0.0.3:8053")
				stale = append(stale, judge(&f)) // 10.0.0.3 is no endpoint
				set(b.cluster, dnsSlices(nil, 2, 3)...)
				b.apply()
				stale = append(stale, judge(&f))
			}
			return 1, nil
		}
		repair()
		synctest.Wait()
		if !slices.Equal(stale, []bool{true, false}) {
			t.Errorf("the flow is stale: %v, want only at first", stale)
		}
	})
}

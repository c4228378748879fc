package events

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model"
)

func TestRepetitionsBeyondTheLimitAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t)
		w.start(t)
		again := func() {
			w.Node(Warning, ReasonHealthzFailed, ActionStart, "in use")
			time.Sleep(time.Second)
			synctest.Wait()
		}
		for range 100 {
			again()
		}
		time.Sleep(objectInterval)
		again()
		lines := w.server.lines()
		if len(lines) != objectBurst+1 || lines[objectBurst-1] != "PATCH node-1 x25" || lines[objectBurst] != "PATCH node-1 x101" || w.Dropped() != 0 {
			t.Errorf("%d dropped, want none; requests: %q", w.Dropped(), lines)
		}
	})
}

func TestLimitOfOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t)
		w.start(t)
		n := 0
		burst := func(events int) {
			for range events {
				n++
				w.Service(web, Warning, ReasonServiceHealthFailed, ActionListen, fmt.Sprint(n))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		check := func(when string, requests int, dropped uint64) {
			t.Helper()
			if got := len(w.server.seen()); got != requests || w.Dropped() != dropped {
				t.Errorf("%s: %d requests, %d dropped, want %d and %d", when, got, w.Dropped(), requests, dropped)
			}
		}
		burst(30)
		check("a burst", 25, 5)
		w.Node(Normal, ReasonStarting, ActionStart, "")
		synctest.Wait()
		check("another object", 26, 5)
		time.Sleep(objectInterval)
		burst(3)
		check("five minutes later", 27, 7)
		time.Sleep(24 * time.Hour)
		burst(100)
		check("a day later", 52, 82)
	})
}

func TestLimitOfAllObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t)
		w.start(t)
		const services = 2000
		for i := range services {
			w.Service(model.NamespacedName{Namespace: "ns1", Name: fmt.Sprint("web-", i)}, Warning, ReasonServiceHealthFailed, ActionListen, "no")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		// 10 at once, then 5 in each second.
		if got := len(w.server.seen()); got < 300 || got > 320 {
			t.Errorf("%d requests in a minute, want about 310", got)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		sent := len(w.server.seen())
		if sent < queueLen || sent > queueLen+writeBurst+1 || w.Dropped()+uint64(sent) != services {
			t.Errorf("%d sent, %d dropped, want about as many sent as the queue has room for, and the rest dropped", sent, w.Dropped())
		}
		// The memory for them is bounded, and freed in time.
		for i := range maxSeries {
			w.Service(model.NamespacedName{Namespace: "ns2", Name: fmt.Sprint("web-", i)}, Warning, ReasonServiceHealthFailed, ActionListen, "no")
			if i%500 == 499 {
				time.Sleep(5 * time.Minute)
			}
			if s, o := len(w.known), len(w.limits.byObject); s > maxSeries || o > maxObjects {
				t.Fatalf("%d series and %d objects are remembered", s, o)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, want := len(w.server.seen()), sent+maxSeries; got != want || w.Dropped() != services-uint64(sent) {
			t.Errorf("%d requests, want %d; %d dropped", got, want, w.Dropped())
		}
	})
}

func TestTooManyToRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t)
		for i := range maxSeries + 500 {
			w.Service(model.NamespacedName{Namespace: "ns1", Name: fmt.Sprint("web-", i)}, Warning, ReasonServiceHealthFailed, ActionListen, "no")
			if i < maxSeries {
				<-w.queue // as if writing took no time
			}
		}
		if s, o := len(w.known), len(w.limits.byObject); s != maxSeries || o != maxObjects || w.Dropped() != 500 {
			t.Errorf("%d series and %d objects are remembered, %d dropped, want %d, %d and 500", s, o, w.Dropped(), maxSeries, maxObjects)
		}
	})
}

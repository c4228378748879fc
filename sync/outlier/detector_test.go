package outlier

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
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

// bench is a Detector whose clients and endpoints are the test's.
type bench struct {
	*Detector
	*model.Builder
	log strings.Builder

	mu       sync.Mutex
	attempts []model.Attempt
	readings int
	answer   Answer
	asking   int
	most     int // at a time
	asked    map[netip.AddrPort][]time.Time
}

func newBench(t *testing.T, on bool, objects ...modeltest.Object) *bench {
	t.Helper()
	config := modeltest.Config()
	config.OutlierDetection = on
	c := &bench{
		Builder: modeltest.Builder(config, append([]modeltest.Object{modeltest.OurNode()}, objects...)...),
		answer:  Silence, asked: map[netip.AddrPort][]time.Time{},
	}
	c.Detector = New(Options{
		NodeName: modeltest.NodeName, State: reconcile.NewState(c.Builder, 0), Attempts: c.read, Ask: c.ask,
		Log: slog.New(slog.NewTextHandler(&c.log, nil)),
	})
	testaid.Run(t, c.Run)
	return c
}

// round is one of the loop.
func (c *bench) round() {
	var s *model.Snapshot
	c.options.State.Look(func(b *model.Builder) { s = b.Snapshot() })
	c.Done(reconcile.Round{Snapshot: s})
}

func (c *bench) read(context.Context) ([]model.Attempt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readings++
	return c.attempts, nil
}

func (c *bench) ask(ctx context.Context, at netip.AddrPort) Answer {
	c.mu.Lock()
	c.asking++
	c.most = max(c.most, c.asking)
	c.asked[at] = append(c.asked[at], time.Now())
	answer := c.answer
	c.mu.Unlock()
	if answer == Silence {
		select {
		case <-ctx.Done():
		case <-time.After(patience):
		}
	}
	c.mu.Lock()
	c.asking--
	c.mu.Unlock()
	return answer
}

// complain has a client repeat packets to each of so many endpoints of so many Services.
func (c *bench) complain(services, endpoints int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range services {
		for e := range endpoints {
			c.attempts = append(c.attempts, model.Attempt{
				Endpoint: netip.AddrPortFrom(endpointOf(s, e), 8080), Client: netip.MustParseAddr("203.0.113.9"), Packets: 5,
			})
		}
	}
}

func endpointOf(service, endpoint int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(service), byte(endpoint >> 8), byte(endpoint)})
}

// manyServices have so many endpoints each.
func manyServices(services, endpoints int) (all []modeltest.Object) {
	for s := range services {
		name := fmt.Sprintf("ns%d/web", s)
		slice := modeltest.NewSlice(name+"-1", "web").TCP("", 8080)
		for e := range endpoints {
			slice = slice.Endpoint(endpointOf(s, e).String(), modeltest.OnNode(fmt.Sprint("node-", e%50+2)))
		}
		all = append(all, modeltest.NewService(name).On(fmt.Sprint("172.30.0.", s+1)).TCP("", 80), slice)
	}
	return all
}

// However many endpoints are silent, this node asks few at a time, and few a second.
func TestQuestionsAreBounded(t *testing.T) {
	for name, answer := range map[string]Answer{"silent": Silence, "answering": Answered} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const services, endpoints, lasts = 30, 70, 15 * time.Second
				c := newBench(t, true, manyServices(services, endpoints)...)
				c.answer = answer
				c.complain(services, endpoints)
				c.round()
				time.Sleep(lasts)
				synctest.Wait()
				c.mu.Lock()
				defer c.mu.Unlock()
				var all []time.Time
				for _, times := range c.asked {
					all = append(all, times...)
				}
				slices.SortFunc(all, time.Time.Compare)
				if c.most > mostAsked {
					t.Errorf("%d endpoints are asked at a time", c.most)
				}
				for i := range all {
					if n := i + 2*asksPerSecond; n < len(all) && all[n].Sub(all[i]) < time.Second {
						t.Fatalf("%d questions within %v", n-i, all[n].Sub(all[i])) // a second's questions, and as many at once
					}
				}
				if n := len(all); n < 5*mostAsked || n > asksPerSecond*int(lasts/time.Second+1) {
					t.Errorf("%d questions in %v", n, lasts)
				}
				if len(c.judge.suspects) > services*mostSuspects {
					t.Errorf("%d endpoints are suspect", len(c.judge.suspects))
				}
				ejected := len(c.Ejections().Endpoints)
				if answer == Answered && ejected > 0 || answer == Silence && ejected == 0 {
					t.Errorf("%d endpoints are ejected", ejected)
				}
			})
		})
	}
}

// The kernel is read only while a Service asks for it.
func TestNothingIsReadWithoutDetection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := manyServices(1, 3)
		c := newBench(t, false, objects...)
		readings := func(lasts time.Duration) int {
			synctest.Wait()
			before := c.readings
			time.Sleep(lasts)
			synctest.Wait()
			return c.readings - before
		}
		c.round()
		c.complain(1, 1)
		if n := readings(time.Minute); n > 0 || len(c.asked) > 0 {
			t.Errorf("without detection, the kernel is read %d times, and %d endpoints are asked", n, len(c.asked))
		}
		web, _ := objects[0].(modeltest.Service)
		set := func(annotation string) {
			c.options.State.Update(reconcile.Change{}, web.Annotated(model.AnnotationOutlierDetection, annotation).Set)
			c.round()
		}
		set("true")
		if readings(3 * time.Second); len(c.Ejections().Endpoints) != 1 || !strings.Contains(c.log.String(), "endpoint=10.0.0.0:8080") {
			t.Errorf("with detection, %v is ejected:\n%s", c.Ejections(), &c.log)
		}
		set("false")
		readings(10 * time.Second)
		if n := readings(time.Minute); n > 0 || len(c.Ejections().Endpoints) > 0 || !strings.Contains(c.log.String(), "no longer ejected") {
			t.Errorf("without it again, the kernel is read %d times, and %v is ejected:\n%s", n, c.Ejections(), &c.log)
		}
		set("true")
		c.mu.Lock()
		c.attempts = nil
		c.mu.Unlock()
		if n, want := readings(time.Minute), int(time.Minute/readEvery); n < want-2 || n > want+20 {
			t.Errorf("while nobody complains, the kernel is read %d times in a minute, want %d", n, want)
		}
	})
}

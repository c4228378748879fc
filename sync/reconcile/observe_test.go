package reconcile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// recorder notes what it is told.
type recorder struct {
	mu     sync.Mutex
	rounds []Round
}

func (r *recorder) Done(round Round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds = append(r.rounds, round)
}

func (r *recorder) all() []Round {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.rounds)
}

// What changes during a round is the next one's, and all of it.
func TestObserversHearOfRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBackend{takes: 10 * time.Second}
		r := &recorder{}
		s, _ := start(t, 1, b, func(l *Loop) { l.Observers = []Observer{r} })
		begin := time.Now()
		queued := func(what string, last, since time.Time) {
			t.Helper()
			if gotLast, gotSince := s.Queued(); !gotLast.Equal(last) || !gotSince.Equal(since) {
				t.Errorf("%s: queued at %v, and waits since %v, want %v and %v", what, gotLast, gotSince, last, since)
			}
		}
		set := func(c Change, port int) {
			s.Update(c, func(b *model.Builder) { b.SetService(service(port)) })
		}
		old := Change{EndpointSlices: 1, Trigger: begin.Add(-time.Minute)}
		set(old, 80)
		set(Change{Services: 2}, 81)
		time.Sleep(time.Second)
		s.Complete()
		time.Sleep(time.Second) // the first round is under way
		queued("in a round", begin, begin)
		trigger := time.Now()
		set(Change{EndpointSlices: 1, Trigger: trigger, Family: model.IPv6}, 82)
		set(Change{EndpointSlices: 3}, 83)
		if services, slices := s.Pending(); services != 0 || slices != 4 {
			t.Errorf("%d Services and %d slices are pending, want 0 and 4", services, slices)
		}
		queued("a change meanwhile", trigger, begin)
		time.Sleep(10 * time.Second)
		queued("in the next round", trigger, trigger)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		queued("after all", trigger, time.Time{})
		b.fail(errors.New("no"))
		set(Change{}, 84)
		time.Sleep(15 * time.Second)
		synctest.Wait()

		rounds := r.all()
		if len(rounds) != 3 {
			t.Fatalf("%d rounds, want 3", len(rounds))
		}
		none := [2]bool{}
		for i, want := range []Round{
			{Started: begin.Add(time.Second), Full: true, Services: 2, EndpointSlices: 1, Failed: none},
			{Started: begin.Add(11 * time.Second), EndpointSlices: 4, Triggers: [2][]time.Time{model.IPv6: {trigger}}, Failed: none},
			{Started: begin.Add(62 * time.Second), Failed: [2]bool{true, true}},
		} {
			got := rounds[i]
			for sp := range got.Snapshot.Family(model.IPv4).ServicePorts() {
				if port := sp.Frontends[0].VIP.Port; port != []uint16{81, 83, 84}[i] {
					t.Errorf("round %d: port %d, want that of the last change before", i, port)
				}
			}
			if got.Took != 10*time.Second || (got.Err != nil) != (i == 2) {
				t.Errorf("round %d: took %v, error %v", i, got.Took, got.Err)
			}
			got.Snapshot, got.Took, got.Err = nil, 0, nil
			if !reflect.DeepEqual(want, got) {
				t.Errorf("round %d: want %+v\n got %+v", i, want, got)
			}
		}
	})
}

// A source may be incomplete for hours, and the changes of another go on.
func TestTriggersOfAnIncompleteStateAreBounded(t *testing.T) {
	s := NewState(model.NewBuilder(model.Config{}), 1)
	now := time.Now()
	for i := range 3 * MaxTriggers {
		c := Change{EndpointSlices: 1, Trigger: now.Add(time.Duration(i)), Family: model.IPv6}
		s.Update(c, func(*model.Builder) {})
	}
	s.Complete()
	_, taken, _ := s.take()
	triggers := taken.triggers[model.IPv6]
	if len(triggers) != MaxTriggers || !triggers[0].Equal(now) {
		t.Errorf("%d triggers are kept, want the first %d", len(triggers), MaxTriggers)
	}
	if taken.endpointSlices != 3*MaxTriggers {
		t.Errorf("%d changes, want %d", taken.endpointSlices, 3*MaxTriggers)
	}
}

// A service port that the kernel refuses alone is tried again, and its family counts as programmed. If it has no others,
// nothing is.
func TestARefusedServicePortFailsNoFamily(t *testing.T) {
	for services, failed := range map[int]bool{1: true, 2: false} {
		synctest.Test(t, func(t *testing.T) {
			b, r := &fakeBackend{}, &recorder{}
			port := modeltest.PortName("ns1/s1", "", model.TCP)
			b.fail(&model.FamilyError{Family: model.IPv6, Ports: map[model.ServicePortName]bool{port: true}, Err: errors.New("no")})
			s, _ := start(t, 0, b, func(l *Loop) { l.Observers = []Observer{r} })
			s.Update(Change{}, func(b *model.Builder) {
				for i := range services {
					modeltest.NewService(fmt.Sprint("ns1/s", i+1)).On(fmt.Sprint("fd00:172:30::", i+1)).TCP("", 80).Set(b)
				}
			})
			time.Sleep(time.Minute)
			synctest.Wait()
			rounds := r.all()
			if len(rounds) < 2 {
				t.Fatalf("%d rounds in a minute, want tries", len(rounds))
			}
			round := rounds[len(rounds)-1]
			if round.Err == nil || round.Failed != [2]bool{model.IPv6: failed} || round.Refused[model.IPv4] != nil || round.Refused[model.IPv6][port] == failed {
				t.Errorf("%d services: error %v, failed families %v, refused %v", services, round.Err, round.Failed, round.Refused)
			}
		})
	}
}

func TestIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBackend{err: errors.New("no")}
		s, _ := start(t, 0, b, func(l *Loop) { l.MinInterval, l.ResyncInterval = 10*time.Second, time.Minute })
		for i := range 30 {
			synctest.Wait()
			s.Update(Change{}, func(b *model.Builder) { b.SetService(service(80 + i)) })
			time.Sleep(time.Second)
			if i == 15 {
				b.fail(nil)
			}
		}
		synctest.Wait()
		if got := b.rounds(); got < 4 || got > 5 {
			t.Errorf("%d rounds for a change each second in 30s with 10s between them, want 4 or 5", got)
		}
		time.Sleep(5*time.Minute + 30*time.Second)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.resyncs != 6 {
			t.Errorf("%d comparisons in full in 6m, one each minute, want 6", b.resyncs)
		}
	})
}

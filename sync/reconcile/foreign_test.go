package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model"
)

func TestWhatOthersChangeIsRepairedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBackend{}
		others, with := foreignChange()
		_, log := start(t, 0, b, with, func(l *Loop) { l.MinInterval = time.Minute })
		time.Sleep(time.Second) // MinInterval lasts on
		synctest.Wait()
		now := time.Now()
		others <- struct{}{}
		synctest.Wait()
		if b.resyncs != 1 || b.rounds() != 2 || !b.at[1].Equal(now) {
			t.Errorf("%d resyncs, %d rounds, at %v, want a resync and a second round at %v", b.resyncs, b.rounds(), b.at, now)
		}
		if !strings.Contains(log.String(), "level=WARN msg=\"another program changed our rules") {
			t.Errorf("nothing says so:\n%s", log)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if b.resyncs != 1 || b.rounds() != 2 {
			t.Errorf("%d resyncs and %d rounds after ten minutes of peace, want no more", b.resyncs, b.rounds())
		}
	})
}

// Each round that may have put back what another program changed says so, until one has worked.
func TestARoundIsARepairUntilOneHasWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBackend{}
		r := &recorder{}
		others, with := foreignChange()
		s, _ := start(t, 0, b, with, func(l *Loop) { l.Observers = []Observer{r} })
		synctest.Wait()
		b.fail(errors.New("no"))
		others <- struct{}{}
		synctest.Wait()
		b.fail(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		s.Update(Change{}, func(b *model.Builder) { b.SetService(service(80)) })
		time.Sleep(time.Hour) // and a comparison in full
		synctest.Wait()
		var repairs, full []bool
		rounds := r.all()
		for _, round := range rounds {
			repairs, full = append(repairs, round.Repair), append(full, round.Full)
		}
		if want := []bool{false, true, true, false, false}; !slices.Equal(repairs, want) {
			t.Errorf("repairs: %v, want %v", repairs, want)
		}
		if want := []bool{true, true, true, false, true}; !slices.Equal(full, want) {
			t.Errorf("full rounds: %v, want %v", full, want)
		}
	})
}

// stormOf changes the dataplane all the time until the context ends.
func stormOf(ctx context.Context, others chan<- struct{}) {
	for ctx.Err() == nil {
		select {
		case others <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// If another program changes our rules all the time, they are repaired a few times per second,
// each change within a second, and our own changes do not wait. Repairs that take long
// come less and less often. After a storm, changes are repaired at once again.
func TestAStormOfForeignChangesIsBounded(t *testing.T) {
	for _, tt := range []struct {
		takes       time.Duration
		least, most int // repairs in the storm
	}{
		{0, 30, 120},
		{time.Millisecond, 30, 120},
		{20 * time.Millisecond, 30, 120},
		{2 * time.Second, 4, 6},
	} {
		t.Run(tt.takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &fakeBackend{takes: tt.takes}
				others, with := foreignChange()
				s, _ := start(t, 0, b, with)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go stormOf(ctx, others)
				const storm = 30 * time.Second
				time.Sleep(storm)
				synctest.Wait()
				if got := b.rounds() - 1; got < tt.least || got > tt.most {
					t.Errorf("%d repairs in %v, want %d to %d", got, storm, tt.least, tt.most)
				}
				s.Update(Change{}, func(b *model.Builder) { b.SetService(service(80)) })
				time.Sleep(2*tt.takes + time.Millisecond)
				synctest.Wait()
				if b.last().Family(model.IPv4).NumServicePorts() != 1 {
					t.Errorf("a change of ours waits for the storm to end")
				}
				cancel()
				time.Sleep(time.Minute)
				synctest.Wait()
				before := b.rounds()
				for range 2 { // the first ones in a row
					others <- struct{}{}
					time.Sleep(tt.takes + repairInterval)
					synctest.Wait()
				}
				if got := b.rounds() - before; got != 2 {
					t.Errorf("%d repairs after the storm, want 2", got)
				}
			})
		})
	}
}

func TestNothingIsAppliedBeforeEverySourceIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBackend{}
		others, with := foreignChange()
		s, _ := start(t, 2, b, with)
		s.Update(Change{}, func(b *model.Builder) { b.SetService(service(80)) })
		s.Complete()
		others <- struct{}{}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := b.rounds(); got != 0 {
			t.Fatalf("%d rounds with one of two sources complete, want none", got)
		}
		s.Complete()
		time.Sleep(time.Minute)
		synctest.Wait()
		others <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		if b.resyncs != 4 || b.rounds() != 2 { // two of them each hour
			t.Errorf("%d resyncs and %d rounds, want 4 and 2: another program's changes are no reason to begin early", b.resyncs, b.rounds())
		}
	})
}

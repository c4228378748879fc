package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type waitError struct{}

func (waitError) Error() string { return "somebody else has it" }
func (waitError) Waiting()      {}

// However long another process has owned the rules, the loop sees its end within a second or so, and
// does not fill the log.
func TestWaitingForAnotherProcessIsTriedOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBackend{err: fmt.Errorf("IPv4: %w", errors.Join(errors.New("x"), waitError{}))}
		_, log := start(t, 0, b)
		for range 10 {
			time.Sleep(time.Minute)
			synctest.Wait()
			before := b.rounds()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got := b.rounds() - before; got < 1 || got > 4 {
				t.Errorf("%d rounds in two seconds, want about 2", got)
			}
		}
		if got := strings.Count(log.String(), "sync failed"); got != 1 {
			t.Errorf("%d lines in ten minutes, want one:\n%s", got, log)
		}
		b.fail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !strings.Contains(log.String(), "ready") {
			t.Errorf("not ready two seconds after the other process ended:\n%s", log)
		}
	})
}

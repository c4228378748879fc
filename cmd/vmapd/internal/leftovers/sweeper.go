package leftovers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// LookInterval is the time between two looks for leftovers, and between two attempts to remove them.
const LookInterval = 10 * time.Second

// Sweeper removes what other backends and kube-proxy left on the node, until nothing is left. After that, it only looks
// whether something came back: two proxies must not delete each other's rules for ever. It is a [reconcile.Observer].
type Sweeper struct {
	Find   func() (Found, error)
	Remove func() error
	Log    *slog.Logger
	Event  func(text string)

	said reconcile.LastError
	last atomic.Pointer[look]
}

// look is what was found last.
type look struct {
	found Found
	clean bool // a removal left nothing
}

// Left returns what was there when somebody looked last, and whether it came back after everything had been removed.
func (s *Sweeper) Left() (found Found, cameBack bool) {
	if last := s.last.Load(); last != nil {
		return last.found, last.clean && last.found.String() != ""
	}
	return nil, false
}

// Done implements [reconcile.Observer]. The first round that programs the node removes leftovers: not before, so that
// connections always find rules. Leftovers that can't be removed are no failure of the backend, but a warning and an
// event.
func (s *Sweeper) Done(r reconcile.Round) {
	if s.last.Load() == nil && model.IsProgrammed(r.Err) {
		s.sweep()
	}
}

// Run removes what could not be removed before, and looks for leftovers that come back, until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(LookInterval):
		}
		switch last := s.last.Load(); {
		case last == nil: // nothing is programmed yet
		case last.clean:
			found, err := s.Find()
			s.last.Store(&look{found, true})
			s.warn("cannot look for the rules of another proxy", err)
		default:
			s.sweep()
		}
	}
}

func (s *Sweeper) sweep() {
	before, _ := s.Find() // the same error comes after it
	err := s.Remove()
	found, unknown := s.Find()
	if err == nil {
		err = unknown // else what can't be listed is in it
	}
	if text := found.String(); text != "" {
		err = errors.Join(err, fmt.Errorf("still there: %s", text))
	} else if text := before.String(); text != "" {
		s.Log.Info("removed the rules of another backend or proxy", slog.String("removed", text))
	}
	s.last.Store(&look{found, err == nil})
	if s.warn("cannot remove the rules of another backend; retrying", err) {
		s.Event(fmt.Sprintf("cannot remove the rules of another backend or proxy: %v; %s", err, Remedy))
	}
}

// warn logs an error that is not that of the last time.
func (s *Sweeper) warn(message string, err error) (isNew bool) {
	if isNew = s.said.Differs(err) && err != nil; isNew {
		s.Log.Warn(message, slog.Any("err", err))
	}
	return isNew
}

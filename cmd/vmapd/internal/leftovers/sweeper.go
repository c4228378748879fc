package leftovers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// LookInterval is the time between two attempts to remove leftovers.
const LookInterval = 10 * time.Second

// Sweeper removes what other backends and kube-proxy left on the node, until nothing is left. What comes back after
// that stays: two proxies must not delete each other's rules for ever. It is a [reconcile.Observer].
type Sweeper struct {
	Find  func() (Found, error)
	Log   *slog.Logger
	Event func(text string)

	begun, clean atomic.Bool // a removal has begun, one has left nothing
	mu           sync.Mutex  // held while somebody looks or removes
	said         reconcile.LastError
}

// Left looks for leftovers, and reports whether they came back after everything had been removed. Before the first
// removal, there are none. The error says what could not be examined.
func (s *Sweeper) Left() (found Found, cameBack bool, err error) {
	if !s.begun.Load() {
		return nil, false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err = s.Find()
	return found, s.clean.Load() && len(found) > 0, err
}

// Done implements [reconcile.Observer]. The first round that programs the node removes leftovers: not before, so that
// connections always find rules. Leftovers that can't be removed are no failure of the backend, but a warning and an
// event.
func (s *Sweeper) Done(r reconcile.Round) {
	if !s.begun.Load() && model.IsProgrammed(r.Err) {
		s.sweep()
	}
}

// Run removes what could not be removed before, until nothing is left or ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	for !s.clean.Load() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(LookInterval):
		}
		if s.begun.Load() {
			s.sweep()
		}
	}
}

func (s *Sweeper) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clean.Load() { // meanwhile: what is there now came back
		return
	}
	s.begun.Store(true)
	before, err := s.Find()
	if err != nil || len(before) > 0 {
		err = before.Remove()
		left, unknown := s.Find()
		if err = cmp.Or(err, unknown); len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("still there: %v", left))
		} else if len(before) > 0 {
			s.Log.Info("removed the rules of another backend or proxy", slog.String("removed", before.String()))
		}
	}
	s.clean.Store(err == nil)
	if s.said.Differs(err) && err != nil {
		s.Log.Warn("cannot remove the rules of another backend; retrying", slog.Any("err", err))
		s.Event(fmt.Sprintf("cannot remove the rules of another backend or proxy: %v; %s", err, Remedy))
	}
}

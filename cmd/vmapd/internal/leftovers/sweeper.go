package leftovers

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Sweeper removes what other backends and kube-proxy left on the node, until nothing is left. What comes back after
// that stays: two proxies must not delete each other's rules for ever. It is a [reconcile.Observer].
type Sweeper struct {
	Find  func() (Found, error)
	Log   *slog.Logger
	Event func(text string)

	mu    sync.Mutex // held while somebody looks or removes
	begun bool       // the node is programmed
	clean bool       // one look has found nothing
	said  reconcile.LastError
}

// Done implements [reconcile.Observer]. The first round that programs the node removes leftovers: not before, so that
// connections always find rules.
func (s *Sweeper) Done(r reconcile.Round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun && model.IsProgrammed(r.Err) {
		s.begun = true
		_, _ = s.look()
	}
}

// Left looks for leftovers, removes them unless nothing was left before, and reports what stays, and whether that came
// back. Before the first removal, there are none. The error says what could not be examined.
func (s *Sweeper) Left() (found Found, cameBack bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		return nil, false, nil
	}
	wasClean := s.clean
	found, err = s.look()
	return found, wasClean && len(found) > 0, err
}

func (s *Sweeper) look() (left Found, unknown error) {
	before, unknown := s.Find()
	if s.clean {
		return before, unknown
	}
	failed := unknown
	if left = before; unknown != nil || len(before) > 0 {
		failed = before.Remove()
		left, unknown = s.Find()
		if failed = cmp.Or(failed, unknown); len(left) > 0 {
			failed = errors.Join(failed, fmt.Errorf("still there: %v", left))
		} else if len(before) > 0 {
			s.Log.Info("removed the rules of another backend or proxy", slog.String("removed", before.String()))
		}
	}
	s.clean = failed == nil
	if s.said.Differs(failed) && failed != nil {
		s.Log.Warn("cannot remove the rules of another backend; retrying", slog.Any("err", failed))
		s.Event(fmt.Sprintf("cannot remove the rules of another backend or proxy: %v; %s", failed, Remedy))
	}
	return left, unknown
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/nft/kernel"
)

// flatBackend fails with err.
type flatBackend struct{ err error }

func (b *flatBackend) Apply(context.Context, *model.Snapshot) error { return b.err }

func (b *flatBackend) Resync() {}

// Leftovers that can't be removed are logged once and tried again, and no round fails for them.
func TestLeftoversFailNoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Log
		var calls []string
		stuck := errors.New("the lock is held")
		remove := func(name string, err *error) func() error {
			return func() error {
				calls = append(calls, name)
				return *err
			}
		}
		backend := &flatBackend{err: errors.New("no")}
		told := 0
		p := &dataplane{Backend: backend, evidence: new(leftovers.Evidence), sweep: leftovers.NewSweeper(leftovers.Options{
			Removals: []func() error{remove("a", &stuck), remove("b", new(error))},
			Find:     func(bool) (leftovers.Found, error) { return leftovers.Found{}, nil },
			Log:      slog.New(slog.NewTextHandler(&log, nil)), Event: func(string) { told++ },
		})}
		apply := func(wantErr error, want ...string) {
			t.Helper()
			calls = nil
			if err := p.Apply(t.Context(), new(model.Snapshot)); !errors.Is(err, wantErr) {
				t.Errorf("want error %v, got %v", wantErr, err)
			}
			if diff := cmp.Diff(want, calls); diff != "" {
				t.Errorf("removed (-want +got):\n%s", diff)
			}
		}
		apply(backend.err) // nothing is removed before the backend has done its work
		backend.err = &model.RefusedError{Err: errors.New("not this Service")}
		apply(backend.err, "a", "b") // it has, but for one Service
		backend.err = nil
		apply(nil) // a change: it is too early
		<-p.sweep.Again()
		apply(nil, "a", "b")
		<-p.sweep.Again()
		stuck = nil
		apply(nil, "a", "b")
		apply(nil)
		if n := strings.Count(log.String(), "the lock is held"); n != 1 {
			t.Errorf("want one message, got %d:\n%s", n, log.String())
		}
		if told != 1 {
			t.Errorf("want one event, got %d", told)
		}
	})
}

// An instance of vmapd that waits for another one to end is no evidence of another proxy, unless it
// takes too long.
func TestAnotherOwnerOfTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &flatBackend{err: fmt.Errorf("table vmapd is %w", kernel.ErrOwned)}
		r := &leftovers.Evidence{Log: slog.New(slog.DiscardHandler), Event: func(string) {}}
		nothing := func(bool) (leftovers.Found, error) { return leftovers.Found{}, nil }
		p := &dataplane{Backend: backend, evidence: r, sweep: leftovers.NewSweeper(leftovers.Options{Find: nothing, Log: r.Log})}
		apply := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			if err := p.Apply(t.Context(), new(model.Snapshot)); !errors.Is(err, backend.err) {
				t.Fatal(err)
			}
			if got := r.Current()[leftovers.EvidenceOwner]; got != want {
				t.Errorf("evidence %q, want %q", got, want)
			}
		}
		apply(0, "")
		apply(leftovers.HandOver, "")
		apply(time.Second, "table vmapd is owned by another process; waiting for it to end")
		backend.err = nil
		apply(time.Second, "")
	})
}

// An error about a program that is not there names what has it; other errors do not.
func TestAMissingProgramNamesTheImage(t *testing.T) {
	missing := &host.UnsupportedError{Feature: "iptables", Err: fmt.Errorf("iptables: %w", &exec.Error{Name: "iptables", Err: exec.ErrNotFound})}
	err := withImage(missing)
	if !strings.Contains(err.Error(), "image has it") || !errors.As(err, new(*host.UnsupportedError)) {
		t.Errorf("got %v, want the same error with the image", err)
	}
	broken := errors.New("exit status 1")
	if err := withImage(broken); !errors.Is(err, broken) || strings.Contains(err.Error(), "image") {
		t.Errorf("got %v, want %v", err, broken)
	}
}

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

	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
)

// flatBackend fails with err.
type flatBackend struct{ err error }

func (b *flatBackend) Apply(context.Context, *model.Snapshot) error { return b.err }

func (b *flatBackend) Resync() {}

// Leftovers go once the backend has programmed a snapshot, and those that can't be removed fail no round.
func TestLeftoversFailNoRound(t *testing.T) {
	removals := 0
	backend := &flatBackend{err: errors.New("no")}
	p := &dataplane{Backend: backend, evidence: new(leftovers.Evidence), sweep: leftovers.NewSweeper(leftovers.Options{
		Remove: func() error {
			removals++
			return errors.New("the lock is held")
		},
		Find: func(bool) (leftovers.Found, error) { return leftovers.Found{}, nil },
		Log:  slog.New(slog.DiscardHandler), Event: func(string) {},
	})}
	apply := func(err error, want int) {
		t.Helper()
		backend.err = err
		if got := p.Apply(t.Context(), new(model.Snapshot)); !errors.Is(got, err) || removals != want {
			t.Errorf("error %v, %d removals, want %v, %d", got, removals, err, want)
		}
	}
	apply(errors.New("no"), 0)
	apply(&model.RefusedError{Err: errors.New("not this Service")}, 1)
	apply(nil, 1) // a change: it is too early
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

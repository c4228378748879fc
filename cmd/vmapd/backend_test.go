package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
)

// flatBackend fails with err.
type flatBackend struct{ err error }

func (b *flatBackend) Apply(context.Context, *model.Snapshot) error { return b.err }

func (b *flatBackend) Resync() {}

// Leftovers that can't be removed are logged once and tried again, and no round fails for them.
func TestLeftoversFailNoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		var calls []string
		stuck := errors.New("the lock is held")
		remove := func(name string, err *error) func() error {
			return func() error {
				calls = append(calls, name)
				return *err
			}
		}
		backend := &flatBackend{err: errors.New("no")}
		again := make(chan struct{}, 1)
		told := 0
		p := &dataplane{Backend: backend, rivals: &rivals{}, sweep: &sweeper{
			removals: []func() error{remove("a", &stuck), remove("b", new(error))},
			find:     func(bool) (found, error) { return found{}, nil },
			again:    func() { again <- struct{}{} },
			log:      slog.New(slog.NewTextHandler(&log, nil)), event: func(string) { told++ },
		}}
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
		<-again
		apply(nil, "a")
		<-again
		stuck = nil
		apply(nil, "a")
		apply(nil)
		if n := strings.Count(log.String(), "the lock is held"); n != 1 {
			t.Errorf("want one message, got %d:\n%s", n, log.String())
		}
		if told != 1 {
			t.Errorf("want one event, got %d", told)
		}
	})
}

// An error about a program that is not there names what has it; other errors do not.
func TestAMissingProgramNamesTheImage(t *testing.T) {
	missing := &host.UnsupportedError{Feature: "ipset", Err: fmt.Errorf("ipset list: %w", &exec.Error{Name: "ipset", Err: exec.ErrNotFound})}
	err := withImage(missing)
	if !strings.Contains(err.Error(), "image has them") || !errors.As(err, new(*host.UnsupportedError)) {
		t.Errorf("got %v, want the same error with the image", err)
	}
	broken := errors.New("exit status 1")
	if err := withImage(broken); !errors.Is(err, broken) || strings.Contains(err.Error(), "image") {
		t.Errorf("got %v, want %v", err, broken)
	}
}

//go:build linux

package rtnetlink

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// world is a kernel that answers what the test says.
type world struct {
	mu      sync.Mutex
	dialErr error
	readErr error
	wait    chan error // of the present subscription; a nil is a change
	dialed  int
	reads   int // that succeeded
}

func (w *world) dial() (kernel, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialed++
	if w.dialErr != nil {
		return kernel{}, w.dialErr
	}
	wait, closed := make(chan error), make(chan struct{})
	w.wait = wait
	return kernel{
		wait: func() error {
			select {
			case err := <-wait:
				return err
			case <-closed:
				return errors.New("closed")
			}
		},
		close: func() { close(closed) },
	}, nil
}

func (w *world) read(*netlink.Handle) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.readErr == nil {
		w.reads++
	}
	return w.readErr
}

// is changes the world, and then lets a wait return what is given.
func (w *world) is(dialErr, readErr error, wait ...error) {
	w.mu.Lock()
	w.dialErr, w.readErr = dialErr, readErr
	current := w.wait
	w.mu.Unlock()
	for _, err := range wait {
		current <- err
	}
}

func TestErrorsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		var log bytes.Buffer
		f := Follower{Log: slog.New(slog.NewTextHandler(&log, nil)), What: "the links", Read: w.read, dial: w.dial}
		// want lets d pass, of the bubble's time, and checks how often was read, and what was logged.
		want := func(step string, d time.Duration, reads int, logged ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.reads != reads {
				t.Errorf("%s: read %d times, want %d", step, w.reads, reads)
			}
			w.reads = 0
			lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
			log.Reset()
			if len(logged) == 0 {
				logged = []string{""}
			}
			if len(lines) != len(logged) {
				t.Errorf("%s: logged %q, want %q", step, lines, logged)
				return
			}
			for i, text := range logged {
				if !strings.Contains(lines[i], text) {
					t.Errorf("%s: logged %q, want %q", step, lines[i], text)
				}
			}
		}
		dialed := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.dialed
		}
		noSocket, noList := errors.New("too many open files"), errors.New("dump interrupted")

		w.is(noSocket, nil)
		testaid.Run(t, f.Run)
		want("no socket", time.Hour, 0,
			"cannot read the links; keeping the known ones\" err=\"subscribe: too many open files\"")
		if got, most := dialed(), int(time.Hour/maxRetry)+20; got > most {
			t.Errorf("opened %d times in an hour, want at most %d", got, most)
		}
		w.is(nil, noList)
		want("no list", time.Hour, 0, "dump interrupted")
		w.is(nil, nil)
		want("at last", maxRetry, 1, "reading the links again")
		w.is(nil, nil, nil)
		want("a change", 0, 1)
		w.is(nil, noList, nil)
		want("an error", 0, 0, "dump interrupted")
		w.is(nil, nil)
		want("is retried at once", 2*minRetry, 1, "reading the links again")

		before := dialed()
		w.is(nil, nil, errors.New("broken socket"))
		want("a new socket, and a list of what it missed", 2*minRetry, 1, "broken socket", "reading the links again")
		if got := dialed(); got != before+1 {
			t.Errorf("opened %d times after an error, want 1", got-before)
		}
	})
}

func TestChangesDuringThePauseAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		f := Follower{Log: slog.New(slog.DiscardHandler), Pause: time.Second, Read: w.read, dial: w.dial}
		testaid.Run(t, f.Run)
		synctest.Wait()
		w.is(nil, nil, nil, nil, nil)
		for _, want := range []int{1, 2, 3, 3} { // the first change, and all others
			synctest.Wait()
			w.mu.Lock()
			if w.reads != want {
				t.Errorf("read %d times, want %d", w.reads, want)
			}
			w.mu.Unlock()
			time.Sleep(3 * time.Second / 2)
		}
	})
}

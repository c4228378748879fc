//go:build linux

package hostaddr

// Addresses: nodes 192.168.0.0/24 (ours .2), and IPv6 twins in fd00:40::/64.

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func addrs(list ...string) []netip.Addr {
	out := make([]netip.Addr, 0, len(list))
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func texts(list []netip.Addr) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}

func TestOrder(t *testing.T) {
	at := func(addr string, link, flags int) address {
		return address{Addr: netip.MustParseAddr(addr), link: link, flags: flags}
	}
	all := []address{
		at("fd00:40::9", 2, unix.IFA_F_TEMPORARY),
		at("fd00:40::2", 2, 0),
		at("192.168.7.1", 9, 0),
		at("192.168.5.1", 1, 0),
		at("192.168.0.3", 4, unix.IFA_F_SECONDARY),
		at("192.168.0.1", 4, 0),
		at("192.168.0.2", 4, 0),
		at("192.168.7.1", 3, 0),
		at("fd00:50::2", 1, unix.IFA_F_DEPRECATED),
		at("fd00:50::3", 1, 0),
	}
	for _, tt := range []struct {
		name string
		ways []address
		want []string
	}{{
		"no way out: by interface", nil,
		[]string{
			"192.168.5.1", "192.168.7.1", "192.168.0.1", "192.168.0.2", "192.168.0.3",
			"fd00:50::3", "fd00:50::2", "fd00:40::2", "fd00:40::9",
		},
	}, {
		"the source address first, then its interface",
		[]address{at("192.168.0.2", 4, 0), at("fd00:40::2", 2, 0)},
		[]string{
			"192.168.0.2", "192.168.0.1", "192.168.0.3", "192.168.5.1", "192.168.7.1",
			"fd00:40::2", "fd00:40::9", "fd00:50::3", "fd00:50::2",
		},
	}, {
		"a temporary source address is not the node's",
		[]address{at("fd00:40::9", 2, 0)},
		[]string{
			"192.168.5.1", "192.168.7.1", "192.168.0.1", "192.168.0.2", "192.168.0.3",
			"fd00:40::2", "fd00:40::9", "fd00:50::3", "fd00:50::2",
		},
	}} {
		t.Run(tt.name, func(t *testing.T) {
			in := append([]address(nil), all...)
			if diff := cmp.Diff(tt.want, texts(order(in, tt.ways))); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUsable(t *testing.T) {
	for _, tt := range []struct {
		addr  string
		flags int
		want  bool
	}{
		{"192.168.0.2", unix.IFA_F_PERMANENT, true},
		{"169.254.20.10", 0, true}, // link-local IPv4 is routable within a node
		{"127.0.0.1", 0, false},
		{"127.9.9.9", 0, false},
		{"::1", 0, false},
		{"fe80::1", 0, false},
		{"fd00:40::2", 0, true},
		{"fd00:40::2", unix.IFA_F_TENTATIVE, false},
		{"fd00:40::2", unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC, true},
		{"fd00:40::2", unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED, false},
		{"fd00:40::2", unix.IFA_F_DADFAILED, false},
		{"fd00:40::2", unix.IFA_F_DEPRECATED, true},
	} {
		if got := usable(netip.MustParseAddr(tt.addr), tt.flags); got != tt.want {
			t.Errorf("%s with flags %#x: want %v, got %v", tt.addr, tt.flags, tt.want, got)
		}
	}
}

// fake is a kernel that answers what the test says.
type fake struct {
	wait   chan error // a nil is a change
	closed chan struct{}
	list   func() ([]netip.Addr, error)
}

func (f *fake) Wait() error {
	select {
	case err := <-f.wait:
		return err
	case <-f.closed:
		return errClosed
	}
}
func (f *fake) List() ([]netip.Addr, error) { return f.list() }
func (f *fake) Close()                      { close(f.closed) }

// world is what the fake kernels answer, and what became of it.
type world struct {
	mu       sync.Mutex
	openErr  error
	listErr  error
	addrs    []netip.Addr
	current  *fake
	opened   int
	complete int
	updates  [][]string
}

func (w *world) open() (kernel, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened++
	if w.openErr != nil {
		return nil, w.openErr
	}
	w.current = &fake{wait: make(chan error), closed: make(chan struct{}), list: func() ([]netip.Addr, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.addrs, w.listErr
	}}
	return w.current, nil
}

// is changes the world, and reports the change to Wait.
func (w *world) is(openErr, listErr error, event func(*fake), list ...string) {
	w.mu.Lock()
	w.openErr, w.listErr, w.addrs = openErr, listErr, addrs(list...)
	current := w.current
	w.mu.Unlock()
	if event != nil {
		event(current)
	}
}

func change(f *fake) { f.wait <- nil }

func broken(f *fake) { f.wait <- errors.New("broken socket") }

func TestErrorsKeepTheAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		f := follower{
			log:  slog.New(slog.DiscardHandler),
			open: w.open,
			update: func(a []netip.Addr) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.updates = append(w.updates, texts(a))
			},
			complete: func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.complete++
			},
		}
		// want lets d pass, of the bubble's time, and checks what came of it.
		want := func(step string, d time.Duration, complete int, want ...[]string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			if diff := cmp.Diff(want, w.updates); diff != "" {
				t.Errorf("%s: updates (-want +got):\n%s", step, diff)
			}
			if w.complete != complete {
				t.Errorf("%s: complete: want %d times, got %d", step, complete, w.complete)
			}
			w.updates = nil
		}
		opened := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.opened
		}
		noSocket, noList := errors.New("too many open files"), errors.New("dump interrupted")

		w.is(noSocket, nil, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); f.run(ctx) }()
		want("no socket", time.Hour, 0)
		if got, most := opened(), int(time.Hour/maxRetry)+20; got > most {
			t.Errorf("opened %d times in an hour, want at most %d", got, most)
		}
		w.is(nil, noList, nil, "192.168.0.2")
		want("no list", time.Hour, 0)
		w.is(nil, nil, nil, "192.168.0.2")
		want("at last", maxRetry, 1, []string{"192.168.0.2"})
		w.is(nil, nil, change, "192.168.0.2")
		want("nothing changed", 0, 1)
		w.is(nil, nil, change, "192.168.0.2", "fd00:40::2")
		want("one more", 0, 1, []string{"192.168.0.2", "fd00:40::2"})
		w.is(nil, noList, change)
		want("an error takes nothing away", 0, 1)
		w.is(nil, nil, nil, "fd00:40::2")
		want("and is retried at once", 2*minRetry, 1, []string{"fd00:40::2"})

		before := opened()
		w.is(nil, nil, broken)
		want("a new socket, and a list of what it missed", 2*minRetry, 1, []string(nil))
		if got := opened(); got != before+1 {
			t.Errorf("opened %d times after an error, want 1", got-before)
		}
		cancel()
		<-ended
	})
}

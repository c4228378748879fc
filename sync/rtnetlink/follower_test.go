//go:build linux

package rtnetlink

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

// world is a namespace of which a Follower reads the links.
type world struct {
	*testing.T
	handle *netlink.Handle
	log    testlog.Log

	mu    sync.Mutex
	err   error // of reads
	reads int   // that succeeded
	told  [][]int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ns := netns.NsHandle(nettest.New(t).Fd())
	w := &world{T: t}
	var err error
	if w.handle, err = netlink.NewHandleAt(ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.handle.Close)
	f := Follower[int]{
		Log: slog.New(slog.NewTextHandler(&w.log, nil)), What: "the links", Groups: []uint{unix.RTNLGRP_LINK},
		List: func(h *netlink.Handle) ([]int, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.err != nil {
				return nil, w.err
			}
			w.reads++
			links, err := h.LinkList()
			sizes := []int{}
			for _, l := range links {
				sizes = append(sizes, l.Attrs().MTU)
			}
			return sizes, err
		},
		Changed: func(sizes []int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, sizes)
		},
	}
	testaid.Run(t, func(ctx context.Context) {
		runtime.LockOSThread() // and its thread ends with it
		if err := netns.Set(ns); err != nil {
			t.Error(err)
		}
		f.Run(ctx)
	})
	w.want("at first", 1)
	return w
}

// want waits until there were so many reads.
func (w *world) want(what string, reads int) {
	w.Helper()
	testaid.WaitUntil(w, what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.reads == reads
	})
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// mtu changes a link.
func (w *world) mtu(size int) {
	w.Helper()
	lo, err := w.handle.LinkByName("lo")
	if err == nil {
		err = w.handle.LinkSetMTU(lo, size)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// A lasting error is logged once, with its end, and tried again: at first soon.
func TestErrorsAreRetried(t *testing.T) {
	w := newWorld(t)
	w.mtu(1500)
	w.want("a change", 2)
	w.fail(errors.New("dump interrupted"))
	w.mtu(1501)
	testaid.WaitUntil(w, "an error", func() bool { return w.log.Count("ERROR", "cannot read the links", "dump interrupted") == 1 })
	time.Sleep(10 * minRetry)
	w.fail(nil)
	w.want("a retry", 3)
	testaid.WaitUntil(w, "the end", func() bool { return w.log.Count("INFO", "reading the links again") == 1 })
	w.mtu(1502)
	w.want("a change after that", 4)
	if got := w.log.Count("ERROR"); got != 1 {
		t.Errorf("%d errors are logged, want 1:\n%s", got, &w.log)
	}
}

// Changes during the pause are one.
func TestChangesDuringThePauseAreOne(t *testing.T) {
	w := newWorld(t)
	begin := time.Now()
	for i := range 50 {
		w.mtu(1500 + i)
	}
	testaid.WaitUntil(t, "the last of the changes", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Equal(w.told[len(w.told)-1], []int{1549})
	})
	took := time.Since(begin)
	if took < pause {
		t.Errorf("read again after %v", took)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if most := 1 + int(took/pause); w.reads > most {
		t.Errorf("%d reads in %v, want %d at most", w.reads, took, most)
	}
}

// What is read again and is the same is no change.
func TestTheSameIsNoChange(t *testing.T) {
	w := newWorld(t)
	w.mtu(1500)
	w.want("a change", 2)
	w.mtu(1501)
	w.mtu(1500)
	w.want("a change there and back", 3)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.told) != 2 {
		t.Errorf("told %v, want two", w.told)
	}
}

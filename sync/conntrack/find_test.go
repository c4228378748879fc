package conntrack

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// A Finder has the state of a connection, and returns at once, whether there is one or not.
func TestFind(t *testing.T) {
	n := newNamespace(t)
	want := parse(t, "tcp 172.30.0.10:80 from 10.0.0.2:8080")
	n.create(t, 1, func(int) flow { return want })
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(n.fd(), unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		f, err := NewFinder()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for range 2 {
			e, found, err := f.Find(model.TCP, want.source, want.dest)
			if err != nil || !found || e.ReplySource != want.replySource || !e.Answered {
				t.Errorf("found %v: %+v, %v", found, e, err)
			}
			if _, found, err = f.Find(model.TCP, want.source, netip.AddrPortFrom(want.dest.Addr(), 81)); found || err != nil {
				t.Errorf("another one is found: %v, %v", found, err)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the kernel's answer has no end")
	}
}

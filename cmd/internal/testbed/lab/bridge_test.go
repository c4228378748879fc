package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model/nettest"
)

// anonymous makes a namespace that lasts as long as the test.
func anonymous(t *testing.T, name string) *Namespace {
	t.Helper()
	ns, err := NewNamespace(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// dialFrom connects from a namespace to an address, within a second.
func dialFrom(ns *Namespace, address string) error {
	return ns.Do(func() error {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

func TestANamespaceIsOpenedByItsFile(t *testing.T) {
	nettest.Need(t)
	ns := anonymous(t, "first")
	if err := ns.AddAddr("lo", netip.MustParsePrefix("192.0.2.7/32")); err != nil {
		t.Fatal(err)
	}
	var again *Namespace
	err := ns.withFD(func(fd int) (err error) {
		again, err = OpenNamespace("again", fmt.Sprintf("/proc/self/fd/%d", fd))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if err := dialFrom(again, "192.0.2.7:9"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("want %v from the address, got %v", unix.ECONNREFUSED, err)
	}
	if _, err := OpenNamespace("none", "/proc/self/fd/none"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("want %v, got %v", unix.ENOENT, err)
	}
}

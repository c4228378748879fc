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

func TestABridgeJoinsMachinesUntilTheirRoutesAreRemoved(t *testing.T) {
	nettest.Need(t)
	sw := anonymous(t, "switch")
	if err := sw.AddBridge("br0"); err != nil {
		t.Fatal(err)
	}
	var machines []*Namespace
	for i := range 2 {
		m := anonymous(t, fmt.Sprintf("machine-%d", i))
		machines = append(machines, m)
		link := fmt.Sprintf("port%d", i)
		for _, step := range []func() error{
			func() error { return Connect(sw, link, m, "eth0") },
			func() error { return sw.AddPort("br0", link) },
			func() error { return m.AddAddr("eth0", netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", i+1))) },
			func() error { return m.AddAddr("eth0", netip.MustParsePrefix(fmt.Sprintf("2001:db8::%d/64", i+1))) },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The second machine has an address that the first one reaches by a route only.
	client, server := machines[0], machines[1]
	far := map[string]netip.Addr{ // to the gateway
		"198.51.100.1": netip.MustParseAddr("192.0.2.2"), "2001:db8:1::1": netip.MustParseAddr("2001:db8::2"),
	}
	for text, via := range far {
		a := netip.MustParseAddr(text)
		host := netip.PrefixFrom(a, a.BitLen())
		if err := errors.Join(server.AddAddr("lo", host), client.AddRoute(Route{Dst: host, Link: "eth0", Via: via})); err != nil {
			t.Fatal(err)
		}
	}
	var l net.Listener
	err := server.Do(func() (err error) {
		l, err = net.Listen("tcp", ":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	at := func(text string) string {
		return netip.AddrPortFrom(netip.MustParseAddr(text), uint16(l.Addr().(*net.TCPAddr).Port)).String()
	}
	for text, via := range far {
		if err := dialFrom(client, at(text)); err != nil {
			t.Errorf("through the bridge: %v", err)
		}
		if err := dialFrom(client, at(via.String())); err != nil {
			t.Errorf("to the machine itself: %v", err)
		}
	}
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

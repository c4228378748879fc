//go:build linux

package hostaddr

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// newNamespace returns a network namespace of its own, and a handle in it.
func newNamespace(t *testing.T) (netns.NsHandle, *netlink.Handle) {
	t.Helper()
	ns := netns.NsHandle(nettest.New(t).Fd())
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return ns, h
}

func TestSourceFollowsTheKernel(t *testing.T) {
	ns, h := newNamespace(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	link := func(name string) netlink.Link {
		l, err := h.LinkByName(name)
		must(err)
		return l
	}
	addr := func(s string, flags int) *netlink.Addr {
		a, err := netlink.ParseAddr(s)
		must(err)
		// Without duplicate address detection, which takes a second.
		a.Flags = flags | unix.IFA_F_NODAD
		return a
	}
	must(h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth1"}))
	must(h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "virtual"}, PeerName: "other"}))
	for _, name := range []string{"lo", "eth0", "eth1", "virtual", "other"} {
		must(h.LinkSetUp(link(name)))
	}
	eth0, eth1 := link("eth0"), link("eth1")
	must(h.AddrAdd(link("virtual"), addr("172.30.0.10/32", 0)))
	must(h.AddrAdd(eth0, addr("192.168.0.2/24", 0)))

	got := make(chan []netip.Addr, 100)
	s := Source{Log: slog.New(slog.DiscardHandler), Ignore: []string{"virtual", "none"}}
	testaid.Run(t, func(ctx context.Context) {
		runtime.LockOSThread() // and its thread ends with it
		must(netns.Set(ns))
		s.follow(ctx, func(a []netip.Addr) { got <- a })
	})
	deadline := time.After(patience)
	var last []string
	want := func(want ...string) {
		t.Helper()
		for !slices.Equal(last, want) {
			select {
			case a := <-got:
				last = texts(a)
			case <-deadline:
				t.Fatalf("addresses (-want +got):\n%s", cmp.Diff(want, last))
			}
		}
	}
	want("192.168.0.2")

	must(h.AddrAdd(eth0, addr("192.168.0.3/24", 0))) // secondary, as the kernel decides
	want("192.168.0.2", "192.168.0.3")
	must(h.AddrAdd(eth0, addr("fd00:40::2/64", 0)))
	want("192.168.0.2", "192.168.0.3", "fd00:40::2")
	must(h.AddrAdd(eth1, addr("192.168.9.9/24", 0)))

	// The default route decides which is the first.
	for _, way := range []struct {
		link netlink.Link
		via  string
		want []string
	}{
		{eth0, "192.168.0.1", []string{"192.168.0.2", "192.168.0.3", "192.168.9.9", "fd00:40::2"}},
		{eth1, "192.168.9.1", []string{"192.168.9.9", "192.168.0.2", "192.168.0.3", "fd00:40::2"}},
	} {
		must(h.RouteReplace(&netlink.Route{
			LinkIndex: way.link.Attrs().Index,
			Dst:       &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)},
			Gw:        net.ParseIP(way.via),
		}))
		want(way.want...)
	}

	must(h.AddrDel(eth0, addr("fd00:40::2/64", 0)))
	want("192.168.9.9", "192.168.0.2", "192.168.0.3")
	must(h.LinkDel(eth0))
	want()
}

package others

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// BenchmarkOtherPackets is a datagram over loopback: output, postrouting, prerouting and input, by
// an endpoint that is not traced.
func BenchmarkOtherPackets(b *testing.B) {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		b.Skip(err)
	}
	load(b, "table inet others { chain input { type filter hook input priority 0; ct state established accept; }; }\n")
	up(b)
	for _, traces := range []bool{false, true} {
		name := "without a trace"
		if traces {
			name = "beside a trace"
		}
		b.Run(name, func(b *testing.B) {
			if traces {
				tr, err := StartTrace(Filter{Dest: netip.MustParseAddrPort("172.30.0.1:80"), Protocol: model.TCP, Lifetime: time.Hour})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = tr.Close() }()
			}
			server, err := net.ListenPacket("udp4", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = server.Close() }()
			client, err := net.Dial("udp4", server.LocalAddr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			buffer := make([]byte, 1)
			for b.Loop() {
				if _, err := client.Write(buffer); err != nil {
					b.Fatal(err)
				}
				if _, _, err := server.ReadFrom(buffer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// up sets lo up in this thread's namespace.
func up(tb testing.TB) {
	tb.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

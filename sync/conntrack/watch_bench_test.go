package conntrack

import (
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// BenchmarkOthersBesideAWatch is the first datagram of a connection over loopback, which a Watch of
// another destination is not told about.
func BenchmarkOthersBesideAWatch(b *testing.B) {
	for _, watched := range []bool{false, true} {
		name := "without a watch"
		if watched {
			name = "beside a watch"
		}
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread() // and never unlocked: the thread ends with the benchmark
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				b.Skip(err)
			}
			const rules = "table inet t { chain input { type filter hook input priority 0; ct state new accept; }; }\n"
			for _, c := range []*exec.Cmd{exec.Command("ip", "link", "set", "lo", "up"), exec.Command("nft", "-f", "-")} {
				c.Stdin = strings.NewReader(rules)
				if out, err := c.CombinedOutput(); err != nil {
					b.Skipf("%s: %v\n%s", c, err, out)
				}
			}
			client, err := net.ListenUDP("udp4", nil)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			if watched {
				w, err := NewWatch(0, model.TCP, netip.Addr{}, netip.MustParseAddrPort("172.30.0.10:80"))
				if err != nil {
					b.Fatal(err)
				}
				defer w.Close()
			}
			buffer, i := make([]byte, 1), 0
			for b.Loop() {
				i++
				to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, byte(i >> 24), byte(i >> 16), byte(i >> 8)}), uint16(1024+i&0xff))
				if _, err := client.WriteToUDPAddrPort(buffer, to); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

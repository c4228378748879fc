//go:build linux

package hostaddr

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzNotification reads notifications and addresses that make no sense.
func FuzzNotification(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWROUTE), []byte{2})
	f.Add(uint16(unix.RTM_DELROUTE), []byte{2, 0})
	f.Add(uint16(unix.RTM_NEWADDR), []byte{10, 0, 0, 1, 0, 0, 0, 0, 255, 255, 255, 255, 127, 255, 255, 255})
	f.Fuzz(func(t *testing.T, kind uint16, data []byte) {
		new(Source).matters(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data})
		var addrs []address
		for part := range slices.Chunk(data, 16) {
			ip, ok := netip.AddrFromSlice(part)
			if ip = ip.Unmap(); ok && usable(ip, int(kind)) {
				addrs = append(addrs, address{ip, len(addrs) % 3, int(kind)})
			}
		}
		if got := order(slices.Clone(addrs), addrs[:len(addrs)/2]); len(got) > len(addrs) || len(addrs) > 0 && len(got) == 0 {
			t.Errorf("%v from %v", got, addrs)
		}
	})
}

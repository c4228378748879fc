//go:build linux

package hostaddr

import (
	"net/netip"
	"slices"
	"testing"
)

// FuzzOrder orders addresses that make no sense.
func FuzzOrder(f *testing.F) {
	f.Add(uint16(0), []byte{10, 0, 0, 1, 0, 0, 0, 0, 255, 255, 255, 255, 127, 255, 255, 255})
	f.Fuzz(func(t *testing.T, flags uint16, data []byte) {
		var addrs []address
		for part := range slices.Chunk(data, 16) {
			ip, ok := netip.AddrFromSlice(part)
			if ip = ip.Unmap(); ok && usable(ip, int(flags)) {
				addrs = append(addrs, address{ip, len(addrs) % 3, int(flags)})
			}
		}
		if got := order(slices.Clone(addrs), addrs[:len(addrs)/2]); len(got) > len(addrs) || len(addrs) > 0 && len(got) == 0 {
			t.Errorf("%v from %v", got, addrs)
		}
	})
}

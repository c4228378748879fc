//go:build linux

package hostaddr

import (
	"encoding/binary"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// With IPVS, each frontend's address is on vmapd's own device: none of them causes a read.
func TestAddressesOfIgnoredInterfacesDoNotMatter(t *testing.T) {
	var s Source
	s.ignored.Store(7, true)
	for index, want := range map[uint32]bool{7: false, 8: true} {
		data := make([]byte, unix.SizeofIfAddrmsg)
		binary.NativeEndian.PutUint32(data[4:], index)
		for _, kind := range []uint16{unix.RTM_NEWADDR, unix.RTM_DELADDR} {
			if got := s.matters(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}); got != want {
				t.Errorf("message %d of interface %d matters: %v", kind, index, got)
			}
		}
	}
}

package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// sockDiagByFamily is SOCK_DIAG_BY_FAMILY of linux/sock_diag.h.
const sockDiagByFamily = 20

// listens reports whether a process of this network namespace listens at a VIP. It needs no
// privilege. A kernel without inet_diag finds nothing.
func listens(v model.VIP) (bool, error) {
	if v.Protocol != model.TCP && v.Protocol != model.UDP {
		return false, nil
	}
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return false, fmt.Errorf("look up a socket at %v: %w", v, err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written that could be lost
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request}, Data: socketRequest(v),
	})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, fmt.Errorf("look up a socket at %v: %w", v, err)
}

// socketRequest encodes an inet_diag_req_v2 (linux/inet_diag.h) for the socket that would get a packet
// to a VIP. Without the flag of a dump, the kernel looks up one socket.
func socketRequest(v model.VIP) []byte {
	family := byte(unix.AF_INET)
	if v.Addr.Is6() {
		family = unix.AF_INET6
	}
	b := []byte{family, byte(v.Protocol), 0, 0}
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // any state
	// The ports and addresses: those of the socket, and of its peer, which a listener does not
	// have. For UDP, the kernel looks them up in the reverse order (udp_dump_one).
	var socket, peer [16]byte
	copy(socket[:], v.Addr.AsSlice())
	port, peerPort := v.Port, uint16(0)
	if v.Protocol == model.UDP {
		socket, peer, port, peerPort = peer, socket, peerPort, port
	}
	b = binary.BigEndian.AppendUint16(b, port)
	b = binary.BigEndian.AppendUint16(b, peerPort)
	b = append(append(b, socket[:]...), peer[:]...)
	b = binary.NativeEndian.AppendUint32(b, 0)             // any interface
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // INET_DIAG_NOCOOKIE
}

package userspace

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// mostInstructions is the kernel's limit for a program (BPF_MAXINSNS).
const mostInstructions = 4096

// A sieve lets only packets through whose source is in one range of each of its groups. Without
// groups, it lets everything through.
type sieve [][]netip.Prefix

// sieveOf returns the sieve for connections to a frontend that Decide drops by their source address. A
// TCP client is dropped only if the kernel drops its first packet: once a program has accepted the
// connection, it can only be reset. Where that depends on the interface, the sieve lets it through.
func sieveOf(s *model.FamilySnapshot, sp *model.ServicePort, fe *model.Frontend) (groups sieve) {
	if fe.Restricted {
		groups = append(groups, sp.Allowed(*fe))
	}
	switch {
	case fe.Action != model.Drop:
	case !fe.ShortCircuit:
		groups = append(groups, nil)
	case s.Pods.Interface == "":
		inside := slices.Clone(s.Pods.CIDRs)
		for _, a := range s.NodeAddrs {
			inside = append(inside, netip.PrefixFrom(a, a.BitLen()))
		}
		if a := fe.VIP.Addr; !a.IsUnspecified() {
			inside = append(inside, netip.PrefixFrom(a, a.BitLen()))
		}
		groups = append(groups, inside)
	}
	return groups
}

func (g sieve) equal(o sieve) bool { return slices.EqualFunc(g, o, slices.Equal[[]netip.Prefix]) }

// Offsets of the source address in a packet, as a classic BPF program of a socket addresses the IP
// header.
const (
	ipHeader = -0x100000 // SKF_NET_OFF
	source4  = ipHeader + 12
	source6  = ipHeader + 8
)

// program returns the sieve for the kernel; nil if it is too large.
func (g sieve) program() (list []unix.SockFilter) {
	const keep, drop = 1<<32 - 1, 0
	for _, group := range g {
		var tests []unix.SockFilter
		for _, p := range group {
			tests = append(tests, inRange(p)...)
			// How far to jump is set below.
			tests = append(tests, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA})
		}
		for i := range tests {
			if tests[i].Code == unix.BPF_JMP|unix.BPF_JA {
				tests[i].K = uint32(len(tests) - i) // over the drop
			}
		}
		list = append(append(list, tests...), unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: drop})
	}
	if list = append(list, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: keep}); len(list) > mostInstructions {
		return nil
	}
	return list
}

// inRange goes on after its end if the source is not in a range, but for one instruction that it
// leaves out then.
func inRange(p netip.Prefix) (list []unix.SockFilter) {
	addr, offset := p.Addr().AsSlice(), source4
	if p.Addr().Is6() {
		offset = source6
	}
	mask := net.CIDRMask(p.Bits(), p.Addr().BitLen())
	for i := 0; i < len(addr); i += 4 {
		m := binary.BigEndian.Uint32(mask[i:])
		if m == 0 && i > 0 {
			break
		}
		list = append(list,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(offset + i)},
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: m},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(addr[i:]) & m})
	}
	for i := range list {
		if list[i].Code == unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K {
			list[i].Jf = uint8(len(list) - i)
		}
	}
	return list
}

// sift attaches the sieve of a listener's frontend to its socket. Without it, connections that it would
// drop are reset.
func (l *connListener) sift() {
	o := l.at.owner.Load()
	var now sieve
	if sp := l.current(o); sp != nil {
		if fe := frontendAt(sp, Place{l.at.vip, o.kind}); fe != nil && !l.at.vip.Addr.IsLoopback() {
			now = sieveOf(l.snapshot.Load().Family(o.key.family), sp, fe)
		}
	}
	if l.sieve.equal(now) {
		return
	}
	l.sieve = now
	l.sieved.Store(true)
	raw, err := l.socket.SyscallConn()
	if err != nil {
		return
	}
	program := now.program()
	_ = raw.Control(func(fd uintptr) {
		if len(now) == 0 || program == nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) // it may have none
			return
		}
		_ = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
}

// unsift takes the sieve off a connection: its source has passed.
func unsift(c *net.TCPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
	}
}

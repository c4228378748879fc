package firewall

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Bits of connection tracking: NF_CT_STATE_… of nf_tables, and IPS_….
const (
	StateInvalid     = 1
	StateEstablished = 2
	StateRelated     = 4
	StateNew         = 8
	StateUntracked   = 64

	statusSeenReply, statusAssured, statusConfirmed = 1 << 1, 1 << 2, 1 << 3
	statusDNAT                                      = 1 << 5
)

const (
	interfaceSize = 16
	rtnUnicast    = 1
	rtnLocal      = 2
)

// load returns a field of the packet, and which of its bytes are known; nil is none.
func (p *Packet) load(f Field) (value []byte, known []bool) {
	switch f.Kind {
	case Network:
		if p.headers[Network] == nil {
			h := p.network()
			p.headers[Network] = &h
		}
		return p.headers[Network].cut(f)
	case Transport:
		if p.headers[Transport] == nil {
			h := p.transport()
			p.headers[Transport] = &h
		}
		return p.headers[Transport].cut(f)
	case InInterface:
		return interfaceName(p.In)
	case OutInterface:
		return interfaceName(p.Out)
	case Protocol:
		return all([]byte{p.Proto})
	case NFProto:
		if p.v4() {
			return all([]byte{unix.NFPROTO_IPV4})
		}
		return all([]byte{unix.NFPROTO_IPV6})
	case EtherType:
		if p.v4() {
			return all(binary.BigEndian.AppendUint16(nil, unix.ETH_P_IP))
		}
		return all(binary.BigEndian.AppendUint16(nil, unix.ETH_P_IPV6))
	case CtStateXT:
		return p.stateXT()
	case CtState:
		if p.State != 0 {
			return all(binary.NativeEndian.AppendUint32(nil, p.State))
		}
	case CtStatus:
		return p.status()
	case CtOrigDst:
		if p.Orig.IsValid() {
			return all(p.Orig.Addr().AsSlice())
		}
	case CtOrigDstPort:
		if p.Orig.IsValid() {
			return all(binary.BigEndian.AppendUint16(nil, p.Orig.Port()))
		}
	case Mark:
		if p.MarkKnown {
			return all(binary.NativeEndian.AppendUint32(nil, p.Mark))
		}
	case DestType:
		switch p.Local {
		case Yes:
			return all(binary.NativeEndian.AppendUint32(nil, rtnLocal))
		case No:
			return all(binary.NativeEndian.AppendUint32(nil, rtnUnicast))
		case Maybe:
		}
	case Other, inIndex, outIndex:
	}
	return nil, nil
}

func (p *Packet) v4() bool { return !p.IPv6 }

func all(b []byte) ([]byte, []bool) {
	known := make([]bool, len(b))
	for i := range known {
		known[i] = true
	}
	return b, known
}

// status returns the bits of connection tracking that are known: of a new connection, whether it is
// translated.
func (p *Packet) status() ([]byte, []bool) {
	var status uint32
	if p.State == 0 {
		return nil, nil
	}
	if p.Translated {
		status |= statusDNAT
	}
	if p.State == StateEstablished {
		status |= statusSeenReply | statusConfirmed
	}
	b, known := all(binary.NativeEndian.AppendUint32(nil, status))
	for i, only := range binary.NativeEndian.AppendUint32(nil, statusDNAT|statusSeenReply|statusConfirmed) {
		known[i] = only != 0
	}
	return b, known
}

// stateXT returns the state as the matches "conntrack" and "state" have it: a translated destination is
// one of the states (XT_CONNTRACK_STATE_DNAT).
func (p *Packet) stateXT() ([]byte, []bool) {
	if p.State == 0 {
		return nil, nil
	}
	const invalid, tracked, dnat, untracked = 1, 14, 1 << 7, 1 << 8
	state := uint16(p.State & (invalid | tracked))
	if p.Translated {
		state |= dnat
	}
	if p.State == StateUntracked {
		state |= untracked
	}
	return all(binary.NativeEndian.AppendUint16(nil, state))
}

func interfaceName(name string) ([]byte, []bool) {
	switch name {
	case "":
		return nil, nil
	case NoInterface:
		name = ""
	}
	b := make([]byte, interfaceSize)
	copy(b, name)
	return all(b)
}

// header is a part of a packet, with the bytes that are known.
type header struct {
	bytes []byte
	known []bool
}

func (h *header) put(at int, b []byte) {
	copy(h.bytes[at:], b)
	for i := range b {
		h.known[at+i] = true
	}
}

func (h *header) addr(at int, a netip.Addr) {
	if a.IsValid() {
		h.put(at, a.AsSlice())
	}
}

func (p *Packet) network() header {
	const v4Size, v4Proto, v4Src, v4Dst = 20, 9, 12, 16
	const v6Size, v6Proto, v6Src, v6Dst = 40, 6, 8, 24
	if p.v4() {
		h := header{make([]byte, v4Size), make([]bool, v4Size)}
		h.put(v4Proto, []byte{p.Proto})
		h.addr(v4Src, p.Src)
		h.addr(v4Dst, p.Dst)
		return h
	}
	h := header{make([]byte, v6Size), make([]bool, v6Size)}
	h.put(v6Proto, []byte{p.Proto})
	h.addr(v6Src, p.Src)
	h.addr(v6Dst, p.Dst)
	return h
}

// transport returns the ports and, of TCP, the flags.
func (p *Packet) transport() header {
	const size, sport, dport, flags = 20, 0, 2, 13
	const syn, ack = 2, 16
	h := header{make([]byte, size), make([]bool, size)}
	if p.SrcPort != 0 {
		h.put(sport, binary.BigEndian.AppendUint16(nil, p.SrcPort))
	}
	if p.DstPort != 0 {
		h.put(dport, binary.BigEndian.AppendUint16(nil, p.DstPort))
	}
	if p.Proto == unix.IPPROTO_TCP {
		switch p.State {
		case StateNew:
			h.put(flags, []byte{syn})
		case StateEstablished:
			h.put(flags, []byte{ack})
		}
	}
	return h
}

// cut returns a field of a header.
func (h *header) cut(f Field) ([]byte, []bool) {
	if f.Offset < 0 || f.Len <= 0 || f.Offset+f.Len > len(h.bytes) {
		return nil, nil
	}
	return h.bytes[f.Offset : f.Offset+f.Len], h.known[f.Offset : f.Offset+f.Len]
}

package tablesim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// valueType is the type of a value in a listing.
type valueType uint8

const (
	addrType valueType = iota
	protocolType
	portType
	numberType // marks, random numbers
	stateType
	statusType
	nameType
	localType
)

var typeNames = map[string]valueType{
	"ipv4_addr": addrType, "ipv6_addr": addrType, "inet_proto": protocolType, "inet_service": portType,
	"mark": numberType, "ifname": nameType, "ct_state": stateType, "ct_status": statusType, "fib_addrtype": localType,
}

// valueType returns the type of the values that a field is compared with.
func (f Field) valueType() valueType {
	switch f {
	case SourceAddr, DestAddr:
		return addrType
	case Protocol:
		return protocolType
	case SourcePort, DestPort:
		return portType
	case State:
		return stateType
	case Status:
		return statusType
	case Interface:
		return nameType
	case SourceLocal, DestLocal:
		return localType
	case Mark, Random:
	}
	return numberType
}

var names = map[valueType]map[string][]byte{
	protocolType: {"tcp": {byte(model.TCP)}, "udp": {byte(model.UDP)}, "sctp": {byte(model.SCTP)}, "icmp": {1}, "ipv6-icmp": {58}, "icmpv6": {58}},
	stateType:    {"invalid": number(1), "established": number(2), "related": number(4), "new": number(StateNew), "untracked": number(0x40)},
	statusType:   {"dnat": number(StatusDNAT), "snat": number(0x10)},
	localType:    {"local": number(TypeLocal), "unicast": number(TypeUnicast)},
}

// parseValue reads a value, or a range of values: then to is not nil.
func parseValue(t valueType, f model.Family, w string) (from, to []byte, err error) {
	if b, ok := names[t][w]; ok {
		return b, nil, nil
	}
	switch t {
	case addrType:
		return parseAddrs(f, w)
	case nameType:
		return []byte(strings.Trim(w, `"`)), nil, nil
	case protocolType, portType, numberType:
		first, last, isRange := strings.Cut(w, "-")
		if from, err = parseNumber(t, first); err == nil && isRange {
			to, err = parseNumber(t, last)
		}
		return from, to, err
	case stateType, statusType, localType:
	}
	return nil, nil, fmt.Errorf("unknown value %q", w)
}

func parseNumber(t valueType, w string) ([]byte, error) {
	bits := map[valueType]int{protocolType: 8, portType: 16, numberType: 32}[t]
	n, err := strconv.ParseUint(w, 0, bits)
	if err != nil {
		return nil, fmt.Errorf("%q is no number of %d bits", w, bits)
	}
	return binary.BigEndian.AppendUint32(nil, uint32(n))[4-bits/8:], nil
}

// parseAddrs reads an address, a prefix or a range of addresses.
func parseAddrs(f model.Family, w string) (from, to []byte, err error) {
	if first, last, ok := strings.Cut(w, "-"); ok {
		a, errA := netip.ParseAddr(first)
		b, errB := netip.ParseAddr(last)
		if err := errors.Join(errA, errB); err != nil || model.FamilyOf(a) != f || model.FamilyOf(b) != f {
			return nil, nil, fmt.Errorf("%q is no range of %v addresses", w, f)
		}
		return a.AsSlice(), b.AsSlice(), nil
	}
	if prefix, err := netip.ParsePrefix(w); err == nil && model.FamilyOf(prefix.Addr()) == f {
		from, to = Range(prefix)
		return from, to, nil
	}
	a, err := netip.ParseAddr(w)
	if err != nil || model.FamilyOf(a) != f {
		return nil, nil, fmt.Errorf("%q is no %v address", w, f)
	}
	return a.AsSlice(), nil, nil
}

// Range returns the first and the last address of a prefix.
func Range(p netip.Prefix) (from, to []byte) {
	from = p.Masked().Addr().AsSlice()
	to = p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(to)*8; i++ {
		to[i/8] |= 0x80 >> (i % 8)
	}
	return from, to
}

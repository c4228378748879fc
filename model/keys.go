package model

import (
	"cmp"
	"net/netip"

	"github.com/vmapd/vmapd/model/persist"
)

// The orders of persistent maps, by service port, by address and by VIP. A service port's key is the name in it, which
// needs no memory of its own.
var (
	ServicePortKeys = persist.KeyFuncs[*ServicePortName]{Hash: hashServicePortName, Compare: compareServicePortNames}
	AddrKeys        = persist.KeyFuncs[netip.Addr]{Hash: hashAddr, Compare: netip.Addr.Compare}
	VIPKeys         = persist.KeyFuncs[VIP]{Hash: hashVIP, Compare: compareVIPs}
)

var nameKeys = persist.KeyFuncs[NamespacedName]{Hash: hashName, Compare: compareNames}

// FNV-1a hashes to the same value in every process, so that output is reproducible.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func fnv[T string | []byte](h uint64, of T) uint64 {
	for i := range len(of) {
		h = (h ^ uint64(of[i])) * fnvPrime
	}
	return h
}

func hashServicePortName(n *ServicePortName) uint64 {
	h := uint64(fnvOffset)
	for _, s := range [...]string{n.Namespace, n.Name, n.Port} {
		h = fnv(fnv(h, s), "\xff") // no name has this byte: "a"+"bc" is not "ab"+"c"
	}
	return (h ^ uint64(n.Protocol)) * fnvPrime
}

func hashName(n NamespacedName) uint64 {
	return hashServicePortName(&ServicePortName{NamespacedName: n})
}

func hashAddr(a netip.Addr) uint64 {
	b := a.As16()
	return fnv(fnvOffset, b[:])
}

func hashVIP(v VIP) uint64 {
	return fnv(hashAddr(v.Addr), []byte{byte(v.Protocol), byte(v.Port >> 8), byte(v.Port)})
}

func compareVIPs(a, b VIP) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

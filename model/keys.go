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

func hashServicePortName(n *ServicePortName) uint64 {
	h := uint64(fnvOffset)
	for _, s := range [...]string{n.Namespace, n.Name, n.Port} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * fnvPrime
		}
		h = (h ^ 0xff) * fnvPrime // no name has this byte: "a"+"bc" is not "ab"+"c"
	}
	return (h ^ uint64(n.Protocol)) * fnvPrime
}

func hashName(n NamespacedName) uint64 {
	return hashServicePortName(&ServicePortName{NamespacedName: n})
}

func hashAddr(a netip.Addr) uint64 {
	h := uint64(fnvOffset)
	for _, c := range a.As16() {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

func hashVIP(v VIP) uint64 {
	h := hashAddr(v.Addr)
	for _, c := range [...]byte{byte(v.Protocol), byte(v.Port >> 8), byte(v.Port)} {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

func compareVIPs(a, b VIP) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

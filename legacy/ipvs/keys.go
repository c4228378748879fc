package ipvs

import (
	"cmp"
	"net/netip"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/persist"
)

// How persistent maps are ordered. The hash is FNV-1a: the same spread in every process.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

var (
	vipKeys  = persist.KeyFuncs[model.VIP]{Hash: hashVIP, Compare: compareVIPs}
	addrKeys = persist.KeyFuncs[netip.Addr]{Hash: hashAddr, Compare: netip.Addr.Compare}
	markKeys = persist.KeyFuncs[uint32]{Hash: func(m uint32) uint64 { return uint64(m) }, Compare: cmp.Compare[uint32]}
)

func hashAddr(a netip.Addr) uint64 {
	h := uint64(fnvOffset)
	b := a.As16()
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

func hashVIP(v model.VIP) uint64 {
	h := hashAddr(v.Addr)
	for _, c := range [...]byte{byte(v.Protocol), byte(v.Port >> 8), byte(v.Port)} {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

func compareVIPs(a, b model.VIP) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

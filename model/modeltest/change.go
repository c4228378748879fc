package modeltest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Seed returns a source for NewRandom.
func Seed(n uint64) rand.Source { return rand.NewPCG(n, 0x76_6d_61_70_64) }

// Bytes returns a source that yields a fuzzer's bytes, one for each choice below, and then
// the numbers of Seed(0): with nothing but zeros, math/rand/v2 would not return.
func Bytes(data []byte) rand.Source { return &bytesSource{data, Seed(0)} }

type bytesSource struct {
	data []byte
	rest rand.Source
}

// Uint64 repeats the byte, as math/rand/v2 uses the upper bits for most bounds, and the lower
// ones for powers of two.
func (s *bytesSource) Uint64() uint64 {
	if len(s.data) == 0 {
		return s.rest.Uint64()
	}
	b := uint64(s.data[0])
	s.data = s.data[1:]
	return b * 0x0101010101010101
}

// Change is one change to a cluster.
type Change struct {
	Object Object       // nil for a change of Host
	Delete bool         // of the object; otherwise it is set
	Host   []netip.Addr // the addresses of the node's interfaces
}

// Apply makes the change.
func (c Change) Apply(b *model.Builder) {
	switch {
	case c.Object == nil:
		b.SetHostAddresses(c.Host)
	case c.Delete:
		c.Object.Delete(b)
	default:
		c.Object.Set(b)
	}
}

func (c Change) String() string {
	switch {
	case c.Object == nil:
		return fmt.Sprintf("host addresses %v", c.Host)
	case c.Delete:
		return fmt.Sprintf("delete %v", c.Object.Ref())
	}
	return fmt.Sprintf("set %v: %+v", c.Object.Ref(), c.Object)
}

// Pod returns the address of the n-th pod.
func Pod(f model.Family, n int) netip.Addr {
	if f == model.IPv4 {
		return netip.MustParseAddr(addrAt("10.0.0.2", n))
	}
	b := netip.MustParseAddr("fd00:10::2").As16()
	binary.BigEndian.PutUint32(b[12:], 2+uint32(n))
	return netip.AddrFrom16(b)
}

// Corpus is the seed corpus of fuzz targets that use Bytes. With the last three, FuzzDecide of
// nftables and of IPVS make connections to one of the endpoints.
func Corpus() [][]byte {
	var all [][]byte
	for _, seed := range []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 781, 1438, 2132} {
		data := make([]byte, 600)
		r := rand.New(Seed(seed))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		all = append(all, data)
	}
	return all
}

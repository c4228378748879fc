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

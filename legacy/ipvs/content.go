package ipvs

import (
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Content is what a kernel holds of one family, or a part of that. A State says what it
// should be; what is read back, or known after half a plan, is one too.
type Content struct {
	Family    model.Family
	Device    string                       // the dummy device; "" if there is none
	Companion *Companion                   // nil if its chains are missing or say something else
	Sysctls   map[string]string            // those known
	Timeouts  Timeouts                     // IPVS's
	Addrs     map[netip.Addr]bool          // on the device
	Sets      map[SetName]map[Entry]uint32 // by entry, the packet mark; a set that exists is not nil
	Servers   map[Key]Server
}

// NewContent returns a Content of nothing.
func NewContent(f model.Family) *Content {
	return &Content{
		Family: f, Sysctls: map[string]string{}, Addrs: map[netip.Addr]bool{},
		Sets: map[SetName]map[Entry]uint32{}, Servers: map[Key]Server{},
	}
}

func (c *Content) add(set SetName, e Entry) { c.addMarked(set, e, 0) }

func (c *Content) addMarked(set SetName, e Entry, mark uint32) {
	if c.Sets[set] == nil {
		c.Sets[set] = map[Entry]uint32{}
	}
	c.Sets[set][e] = mark
}

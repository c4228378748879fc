package ipvs

import (
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// A Content has a kernel's objects of one family, or a part of them: the desired ones of a State,
// those that were read back, or those after half a plan.
type Content struct {
	Family    model.Family
	Device    string                     // the dummy device; "" if there is none
	Companion *Companion                 // nil if its chains are missing or different
	Sysctls   map[string]string          // known values
	Timeouts  Timeouts                   // IPVS's
	Addrs     map[netip.Addr]bool        // on the device
	Sets      map[SetName]map[Entry]bool // a set that exists is not nil
	Servers   map[Key]Server
}

// NewContent returns an empty Content.
func NewContent(f model.Family) *Content {
	return &Content{
		Family: f, Sysctls: map[string]string{}, Addrs: map[netip.Addr]bool{},
		Sets: map[SetName]map[Entry]bool{}, Servers: map[Key]Server{},
	}
}

func (c *Content) add(set SetName, e Entry) {
	if c.Sets[set] == nil {
		c.Sets[set] = map[Entry]bool{}
	}
	c.Sets[set][e] = true
}

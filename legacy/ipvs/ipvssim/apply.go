package ipvssim

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/legacy/ipvs"
)

var (
	errThere   = errors.New("is there already")
	errMissing = errors.New("there is none")
)

// Clone returns an independent copy of a Content.
func Clone(c *ipvs.Content) *ipvs.Content {
	d := *c
	d.Sysctls, d.Addrs = maps.Clone(c.Sysctls), maps.Clone(c.Addrs)
	d.Sets, d.Servers = map[ipvs.SetName]map[ipvs.Entry]bool{}, map[ipvs.Key]ipvs.Server{}
	for name, set := range c.Sets {
		d.Sets[name] = maps.Clone(set)
	}
	for k, s := range c.Servers {
		s.Real = maps.Clone(s.Real)
		d.Servers[k] = s
	}
	return &d
}

// Apply applies an operation to a Content, and fails if a kernel would.
func Apply(c *ipvs.Content, op ipvs.Op) error {
	if err := op.Do(kernel{c}); err != nil {
		return fmt.Errorf("%s: %w", op.Command, err)
	}
	return nil
}

// kernel is a kernel in memory.
type kernel struct{ *ipvs.Content }

func (c kernel) SetSysctl(s ipvs.Sysctl) error {
	c.Sysctls[s.Name] = s.Value
	return nil
}

func (c kernel) SetTimeouts(t ipvs.Timeouts) error {
	c.Timeouts = t.Over(c.Timeouts)
	return nil
}

func (c kernel) CreateDevice() error {
	if c.Device {
		return errThere
	}
	c.Device = true
	return nil
}

func (c kernel) AddAddress(a netip.Addr) error {
	switch {
	case !c.Device:
		return errMissing
	case c.Addrs[a]:
		return errThere
	}
	c.Addrs[a] = true
	return nil
}

func (c kernel) DeleteAddress(a netip.Addr) error { return remove(c.Addrs, a) }

func (c kernel) SetRules(r *ipvs.Rules) error {
	for _, name := range ipvs.SetNames {
		if c.Sets[name] == nil {
			return fmt.Errorf("no set %s", name.In(c.Family))
		}
	}
	c.Rules = r
	return nil
}

func (c kernel) CreateSet(name ipvs.SetName) error {
	if c.Sets[name] != nil {
		return errThere
	}
	c.Sets[name] = map[ipvs.Entry]bool{}
	return nil
}

func (c kernel) AddEntry(name ipvs.SetName, e ipvs.Entry) error {
	set := c.Sets[name]
	if set == nil {
		return errors.New("no set")
	}
	if set[e] {
		return errThere // a kernel accepts it, but no plan should do it
	}
	set[e] = true
	return nil
}

func (c kernel) DeleteEntry(name ipvs.SetName, e ipvs.Entry) error { return remove(c.Sets[name], e) }

func (c kernel) AddServer(k ipvs.Key, s ipvs.Server) error {
	if _, ok := c.Servers[k]; ok {
		return errThere
	}
	s.Real = map[netip.AddrPort]int{}
	c.Servers[k] = s
	return nil
}

func (c kernel) UpdateServer(k ipvs.Key, s ipvs.Server) error {
	have, ok := c.Servers[k]
	if !ok {
		return errMissing
	}
	s.Real = have.Real
	c.Servers[k] = s
	return nil
}

func (c kernel) DeleteServer(k ipvs.Key) error { return remove(c.Servers, k) }

func (c kernel) SetReal(k ipvs.Key, a netip.AddrPort, weight int) error {
	s, ok := c.Servers[k]
	if !ok {
		return errMissing
	}
	w, ok := s.Real[a]
	switch {
	case ok && w == weight:
		return errThere
	case !ok && weight == 0:
		return errMissing
	}
	s.Real[a] = weight
	return nil
}

func (c kernel) DeleteReal(k ipvs.Key, a netip.AddrPort) error { return remove(c.Servers[k].Real, a) }

func remove[K comparable, V any](from map[K]V, k K) error {
	if _, ok := from[k]; !ok {
		return errMissing
	}
	delete(from, k)
	return nil
}

// Text returns a plan as a list of commands, for people to read.
func Text(plan ipvs.Plan) string {
	var b strings.Builder
	for _, op := range plan {
		fmt.Fprintln(&b, op.Command)
	}
	return b.String()
}

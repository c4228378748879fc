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

// Clone returns an independent copy of a KernelState.
func Clone(c *ipvs.KernelState) *ipvs.KernelState {
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

// Apply applies an operation to a KernelState, and fails if a kernel would.
func Apply(c *ipvs.KernelState, op ipvs.Op) error {
	if err := apply(c, op); err != nil {
		return fmt.Errorf("%v: %w", op, err)
	}
	return nil
}

func apply(c *ipvs.KernelState, op ipvs.Op) error {
	switch o := op.(type) {
	case ipvs.SetSysctl:
		c.Sysctls[o.Name] = o.Value
		return nil
	case ipvs.SetTimeouts:
		c.Timeouts = o.Over(c.Timeouts)
		return nil
	case ipvs.CreateDevice, ipvs.AddAddress, ipvs.DeleteAddress:
		return applyDevice(c, op)
	case ipvs.SetRules:
		return applyRules(c, o)
	case ipvs.CreateSet, ipvs.AddEntry, ipvs.DeleteEntry:
		return applySet(c, op)
	case ipvs.AddServer, ipvs.UpdateServer, ipvs.DeleteServer:
		return applyServer(c, op)
	case ipvs.AddReal, ipvs.DrainReal, ipvs.DeleteReal:
		return applyReal(c, op)
	}
	return fmt.Errorf("unknown operation %T", op)
}

func applyDevice(c *ipvs.KernelState, op ipvs.Op) error {
	switch o := op.(type) {
	case ipvs.CreateDevice:
		if c.Device != "" {
			return errThere
		}
		c.Device = o.Name
	case ipvs.AddAddress:
		switch {
		case c.Device != o.Device:
			return errMissing
		case c.Addrs[o.Addr]:
			return errThere
		}
		c.Addrs[o.Addr] = true
	case ipvs.DeleteAddress:
		if !c.Addrs[o.Addr] {
			return errMissing
		}
		delete(c.Addrs, o.Addr)
	}
	return nil
}

func applyRules(c *ipvs.KernelState, o ipvs.SetRules) error {
	for _, name := range ipvs.SetNames {
		if c.Sets[name] == nil {
			return fmt.Errorf("no set %s", name.In(c.Family))
		}
	}
	c.Rules = o.Rules
	return nil
}

func applySet(c *ipvs.KernelState, op ipvs.Op) error {
	switch o := op.(type) {
	case ipvs.CreateSet:
		if c.Sets[o.Set] != nil {
			return errThere
		}
		c.Sets[o.Set] = map[ipvs.Entry]bool{}
	case ipvs.AddEntry:
		set := c.Sets[o.Set]
		if set == nil {
			return errors.New("no set")
		}
		if set[o.Entry] {
			return errThere // a kernel accepts it, but no plan should do it
		}
		set[o.Entry] = true
	case ipvs.DeleteEntry:
		if !c.Sets[o.Set][o.Entry] {
			return errMissing
		}
		delete(c.Sets[o.Set], o.Entry)
	}
	return nil
}

func applyServer(c *ipvs.KernelState, op ipvs.Op) error {
	switch o := op.(type) {
	case ipvs.AddServer:
		if _, ok := c.Servers[o.Key]; ok {
			return errThere
		}
		o.Server.Real = map[netip.AddrPort]int{}
		c.Servers[o.Key] = o.Server
	case ipvs.UpdateServer:
		have, ok := c.Servers[o.Key]
		if !ok {
			return errMissing
		}
		o.Server.Real = have.Real
		c.Servers[o.Key] = o.Server
	case ipvs.DeleteServer:
		if _, ok := c.Servers[o.Key]; !ok {
			return errMissing
		}
		delete(c.Servers, o.Key)
	}
	return nil
}

func applyReal(c *ipvs.KernelState, op ipvs.Op) error {
	switch o := op.(type) {
	case ipvs.AddReal:
		s, ok := c.Servers[o.Key]
		if !ok {
			return errMissing
		}
		if w, ok := s.Real[o.Addr]; ok && w == o.Weight {
			return errThere
		}
		s.Real[o.Addr] = o.Weight
	case ipvs.DrainReal:
		if _, ok := c.Servers[o.Key].Real[o.Addr]; !ok {
			return errMissing
		}
		c.Servers[o.Key].Real[o.Addr] = 0
	case ipvs.DeleteReal:
		if _, ok := c.Servers[o.Key].Real[o.Addr]; !ok {
			return errMissing
		}
		delete(c.Servers[o.Key].Real, o.Addr)
	}
	return nil
}

// Text returns a plan as a list of commands, for people to read.
func Text(plan ipvs.Plan) string {
	var b strings.Builder
	for _, op := range plan {
		fmt.Fprintln(&b, op)
	}
	return b.String()
}

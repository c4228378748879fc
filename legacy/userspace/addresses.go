package userspace

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// addresses keeps the addresses of a device in line with those that Services have.
type addresses struct {
	device Device
	wanted map[netip.Addr]int      // how many service ports and Services have it
	have   map[netip.Addr]struct{} // on the device; nil: unknown
	dirty  map[netip.Addr]struct{} // those that may differ; nil: all
}

// want adds to the number of those who have an address.
func (a *addresses) want(addr netip.Addr, n int) {
	if a.wanted[addr] += n; a.wanted[addr] == 0 {
		delete(a.wanted, addr)
	}
	if a.dirty != nil {
		a.dirty[addr] = struct{}{}
	}
}

func (a *addresses) replace(old, now []netip.Addr) {
	for _, addr := range now {
		a.want(addr, 1)
	}
	for _, addr := range old {
		a.want(addr, -1)
	}
}

// clusterIPs takes the addresses that have no port with an endpoint, too: their ports are refused.
func (a *addresses) clusterIPs(old, now *model.FamilySnapshot) {
	for c := range now.ClusterIPChanges(old) {
		if c.New.IsValid() {
			a.want(c.New, 1)
		} else {
			a.want(c.Old, -1)
		}
	}
}

// add adds what is missing on the device. An address that can't be added does not keep the others
// from it.
func (a *addresses) add() error {
	if a.have == nil {
		have, err := a.device.Addrs()
		if err != nil {
			return fmt.Errorf("read the addresses of the device: %w", err)
		}
		a.have, a.dirty = have, nil
	}
	if a.dirty == nil {
		a.dirty = map[netip.Addr]struct{}{}
		for addr := range a.wanted {
			a.dirty[addr] = struct{}{}
		}
		for addr := range a.have {
			a.dirty[addr] = struct{}{}
		}
	}
	return a.each(func(addr netip.Addr, wanted, there bool) error {
		if !wanted || there {
			return nil
		}
		if err := a.device.Add(addr); err != nil {
			return fmt.Errorf("add the address %v: %w", addr, err)
		}
		a.have[addr] = struct{}{}
		return nil
	})
}

// remove removes what is on the device and nobody wants. It comes after add.
func (a *addresses) remove() error {
	if a.have == nil {
		return nil
	}
	err := a.each(func(addr netip.Addr, wanted, there bool) error {
		if wanted || !there {
			return nil
		}
		if err := a.device.Remove(addr); err != nil {
			return fmt.Errorf("remove the address %v: %w", addr, err)
		}
		delete(a.have, addr)
		return nil
	})
	for addr := range a.dirty {
		if _, there := a.have[addr]; there == (a.wanted[addr] > 0) {
			delete(a.dirty, addr)
		}
	}
	return err
}

// mostErrors is the number of errors of addresses in one error.
const mostErrors = 10

// each calls do for the addresses that may differ, and returns the errors by family.
func (a *addresses) each(do func(addr netip.Addr, wanted, there bool) error) error {
	var errs [len(model.Families)][]error
	for addr := range a.dirty {
		_, there := a.have[addr]
		if err := do(addr, a.wanted[addr] > 0, there); err != nil {
			f := model.FamilyOf(addr)
			errs[f] = append(errs[f], err)
		}
	}
	var all []error
	for f, list := range errs {
		if n := len(list); n > mostErrors {
			list = append(list[:mostErrors], fmt.Errorf("and %d more", n-mostErrors))
		}
		if len(list) > 0 {
			all = append(all, &model.FamilyError{Family: model.Family(f), Err: errors.Join(list...)})
		}
	}
	return errors.Join(all...)
}

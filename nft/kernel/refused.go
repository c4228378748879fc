package kernel

import (
	"errors"
	"fmt"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/compile"
)

// tryAgainAfter is when refused service ports are tried again although other Services change all the time.
const tryAgainAfter = 30 * time.Second

// refused are the service ports that the kernel refuses. All else is programmed, and they stay as they were. The zero
// value is none.
type refused struct {
	was   map[model.ServicePortName]*model.ServicePort // in their place; nil: nothing
	errs  []error
	since time.Time
	s     *model.FamilySnapshot // of the last Apply
}

// add adds the service ports with elements that made an attempt to reach a ruleset fail; before is what was there. It
// reports whether that was the reason, and another attempt may work.
func (r *refused) add(err error, want, before *compile.Ruleset) (added bool) {
	failed, _ := errors.AsType[*BatchError](err)
	if !isRefusal(err) {
		return false
	}
	keys := map[[2]string]bool{}
	for _, list := range failed.elements {
		for _, e := range list.List {
			keys[[2]string{list.Set, e.Key}] = true
		}
	}
	if r.was == nil {
		*r = refused{was: map[model.ServicePortName]*model.ServicePort{}, since: time.Now(), s: r.s}
	}
	for _, sp := range want.PortsWith(func(set, key string) bool { return keys[[2]string{set, key}] }) {
		added = true
		if _, again := r.was[sp.Name]; again {
			r.was[sp.Name] = nil // what was there is refused, too
			continue
		}
		r.was[sp.Name] = before.Former(sp)
		r.errs = append(r.errs, fmt.Errorf("Service %v: %w", sp.Name, err)) //nolint:staticcheck // a kind of Kubernetes
	}
	return added
}

// err returns the error of an Apply that was successful but for these service ports.
func (r *refused) err(f model.Family) error {
	if len(r.was) == 0 {
		return nil
	}
	ports := map[model.ServicePortName]bool{}
	for name := range r.was {
		ports[name] = true
	}
	return &model.FamilyError{Family: f, Ports: ports, Err: errors.Join(r.errs...)}
}

// forget forgets the service ports if they are to be tried again: they have changed, nothing else has, as when the loop
// tries again, or a time has passed.
func (r *refused) forget(s *model.FamilySnapshot) {
	again := s == r.s || time.Since(r.since) >= tryAgainAfter
	for name := range r.was {
		before, _ := r.s.ServicePort(name)
		now, _ := s.ServicePort(name)
		again = again || now != before
	}
	if again {
		*r = refused{s: r.s}
	}
}

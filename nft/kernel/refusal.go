package kernel

import (
	"errors"
	"time"

	"github.com/vmapd/vmapd/model"
)

const (
	// maxRefused bounds the service ports that are left out of one batch, one by one.
	maxRefused = 10
	// tryAgainAfter is when refused service ports are tried again although other Services change all the time.
	tryAgainAfter = 30 * time.Second
)

// refusal is that of single service ports by the kernel. What it has of them is not known: before they are tried again,
// the table is read. Other changes do without.
type refusal struct {
	ports map[model.ServicePortName]bool
	errs  []error
	since time.Time
	s     *model.FamilySnapshot // of the last Apply
}

// with returns a refusal with another service port. It may be called on nil.
func (r *refusal) with(name model.ServicePortName, err error) *refusal {
	if r == nil {
		r = &refusal{ports: map[model.ServicePortName]bool{}, since: time.Now()}
	}
	r.ports[name] = true
	r.errs = append(r.errs, err)
	return r
}

// number returns the number of service ports. It may be called on nil.
func (r *refusal) number() int {
	if r == nil {
		return 0
	}
	return len(r.ports)
}

func (r *refusal) err(f model.Family) error {
	return &model.RefusedError{Family: f, Ports: r.ports, Err: errors.Join(r.errs...)}
}

// mustBeTried reports whether the refused service ports are to be tried again: they have changed, nothing else has, as
// when the loop tries again, or a time has passed. It may be called on nil.
func (r *refusal) mustBeTried(s *model.FamilySnapshot) bool {
	if r == nil {
		return false
	}
	if s == r.s || time.Since(r.since) >= tryAgainAfter {
		return true
	}
	for name := range r.ports {
		before, _ := r.s.ServicePort(name)
		if now, _ := s.ServicePort(name); now != before {
			return true
		}
	}
	return false
}

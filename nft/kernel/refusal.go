package kernel

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/batch"
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
	ports     map[model.ServicePortName]bool
	errs      []error
	since     time.Time
	s         *model.FamilySnapshot // of the last Apply
	leftovers bool                  // what other Services do not need any more, and these ports still use
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

// deleteUnused deletes chains and sets, but for those that refused service ports still use.
func (b *Backend) deleteUnused(changes *batch.Batch) error {
	var rest []*batch.Batch
	for _, name := range changes.DeleteChains {
		rest = append(rest, &batch.Batch{Family: changes.Family, DeleteChains: []string{name}})
	}
	for _, name := range changes.DeleteSets {
		rest = append(rest, &batch.Batch{Family: changes.Family, DeleteSets: []string{name}})
	}
	for _, name := range changes.DeleteFlowtables {
		rest = append(rest, &batch.Batch{Family: changes.Family, DeleteFlowtables: []string{name}})
	}
	for deleted := true; deleted; { // one may use another
		var used []*batch.Batch
		for _, one := range rest {
			t := b.conn.begin(changes.Family)
			t.deletions(one)
			err := t.commit()
			if errors.Is(err, unix.EBUSY) {
				used = append(used, one)
			} else if err != nil {
				return err
			}
		}
		deleted, rest = len(used) < len(rest), used
	}
	return nil
}

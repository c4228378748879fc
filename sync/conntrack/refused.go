package conntrack

import (
	"cmp"
	"time"

	"github.com/vmapd/vmapd/model"
)

// refused are service ports that the kernel refuses alone, as they are in the dataplane: as they were before. A nil service
// port was not there.
type refused map[model.ServicePortName]*model.ServicePort

// leaves reports whether a change is one of a service port that the kernel refused, and notes that it stays as it was.
func (r *refused) leaves(c model.Change[*model.ServicePort], ports map[model.ServicePortName]bool) bool {
	name := nameOf(c)
	if !ports[name] {
		return false
	}
	if *r == nil {
		*r = refused{}
	}
	if _, ok := (*r)[name]; !ok {
		(*r)[name] = c.Old
	}
	return true
}

// frontends are those that the refused service ports of a snapshot would have. An earlier process may have made them.
func (r refused) frontends(s *model.FamilySnapshot) map[model.VIP]struct{} {
	all := map[model.VIP]struct{}{}
	for name := range r {
		sp, _ := s.ServicePort(name)
		for vip := range vips(sp) {
			all[vip] = struct{}{}
		}
	}
	return all
}

// catchUp makes changes of service ports that the kernel no longer refuses. Which of their rules were in force meanwhile is not
// known: it is as if they had been deleted and made again.
func (f *family) catchUp(ports map[model.ServicePortName]bool, now time.Time) {
	for name, was := range f.behind {
		if ports[name] {
			continue
		}
		delete(f.behind, name)
		f.change(model.Change[*model.ServicePort]{Old: was}, now)
		is, _ := f.applied.ServicePort(name)
		f.change(model.Change[*model.ServicePort]{New: is}, now)
	}
}

func nameOf(c model.Change[*model.ServicePort]) model.ServicePortName {
	return cmp.Or(c.New, c.Old).Name
}

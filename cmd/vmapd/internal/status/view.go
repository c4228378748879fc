package status

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/persist"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// View is the state after a round. It never changes.
type View struct {
	// Snapshot is the desired state of the last round; nil before the first one.
	Snapshot *model.Snapshot
	Families [len(model.Families)]FamilyView
}

// FamilyView is the state of one IP family.
type FamilyView struct {
	Programmed *model.FamilySnapshot // nil: nothing was
	Error      string                // of the last round; "" if it succeeded

	first   time.Time                      // the first success of this process
	changed changes                        // of service ports that have changed since
	refused map[model.ServicePortName]bool // of the last round that programmed the family
}

// changes are the times at which service ports were programmed as they are, in nanoseconds since 1970.
// A key is the name in the service port: it needs no memory of its own.
type changes = persist.Map[*model.ServicePortName, int64]

var changeKeys = persist.KeyFuncs[*model.ServicePortName]{
	Hash:    func(n *model.ServicePortName) uint64 { return model.ServicePortKeys.Hash(*n) },
	Compare: func(a, b *model.ServicePortName) int { return model.ServicePortKeys.Compare(*a, *b) },
}

// Recorder is an observer of the loop that keeps the latest View. The zero value is ready.
type Recorder struct{ view atomic.Pointer[View] }

// View returns the state after the latest round.
func (r *Recorder) View() *View {
	if v := r.view.Load(); v != nil {
		return v
	}
	return &View{}
}

// Done implements [reconcile.Observer]. The loop alone calls it.
func (r *Recorder) Done(round reconcile.Round) {
	before := r.View()
	next := &View{Snapshot: round.Snapshot, Families: before.Families}
	for _, f := range model.Families {
		family := &next.Families[f]
		if round.Err != nil && round.Failed[f] {
			family.Error = round.Err.Error()
			continue
		}
		family.program(round.Snapshot.Family(f), round.Started.Add(round.Took))
		if family.refused = round.Refused[f]; len(family.refused) > 0 {
			family.Error = round.Err.Error()
		}
	}
	r.view.Store(next)
}

// program notes that a snapshot was programmed. Its cost depends on the difference.
func (v *FamilyView) program(s *model.FamilySnapshot, at time.Time) {
	v.Error = ""
	if v.Programmed == nil {
		v.Programmed, v.first = s, at
		return
	}
	edit := v.changed.Edit(changeKeys)
	for c := range s.ServicePortChanges(v.Programmed) {
		if c.New == nil {
			edit.Delete(&c.Old.Name)
			continue
		}
		edit.Set(&c.New.Name, at.UnixNano())
	}
	v.Programmed, v.changed = s, edit.Done()
}

// since returns the time at which a programmed service port became as it is.
func (v *FamilyView) since(sp *model.ServicePort) time.Time {
	at := v.first
	if ns, ok := v.changed.Get(changeKeys, &sp.Name); ok {
		at = time.Unix(0, ns)
	}
	return at.UTC().Truncate(time.Second)
}

// isProgrammed reports whether a service port of the desired state is programmed as it is.
func (v *FamilyView) isProgrammed(sp *model.ServicePort) bool {
	if v.Error == "" || v.Programmed == nil {
		return v.Programmed != nil
	}
	now, _ := v.Programmed.ServicePort(sp.Name)
	return now == sp && !v.refused[sp.Name]
}

// Filter chooses Services. The zero value chooses all.
type Filter struct {
	Namespace, Name string // "": any
	Search          string // a part of NAMESPACE/NAME:PORT, in lower case
}

func (f Filter) matches(n model.NamespacedName, port string) bool {
	text := func() string { return strings.ToLower(model.ServicePortName{NamespacedName: n, Port: port}.String()) }
	return (f.Namespace == "" || f.Namespace == n.Namespace) && (f.Name == "" || f.Name == n.Name) &&
		(f.Search == "" || strings.Contains(text(), f.Search))
}

// Ports returns the service ports of the desired state that a filter chooses, sorted by name, IPv4 before IPv6.
func (v *View) Ports(filter Filter) (list []*model.ServicePort) {
	if v.Snapshot == nil {
		return nil
	}
	for _, f := range model.Families {
		for sp := range v.Snapshot.Family(f).ServicePorts() {
			if filter.matches(sp.Name.NamespacedName, sp.Name.Port) {
				list = append(list, sp)
			}
		}
	}
	slices.SortFunc(list, func(a, b *model.ServicePort) int {
		return cmp.Or(model.ServicePortKeys.Compare(a.Name, b.Name), cmp.Compare(a.Family, b.Family))
	})
	return list
}

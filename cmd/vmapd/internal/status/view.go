// Package status has the answers to questions about a running daemon: what it has programmed and since
// when, what it has left out and for which reason.
//
//	reconcile.Loop ── Recorder.Done ──> View ──┬─> Overview, Services, One
//	                                           │        │
//	                             a pointer     │        ├── JSON: the daemon's socket
//	                                           │        └── Tables: vmapd status, vmapd services
//
// A [View] never changes, so questions take no lock, and the loop never waits for an answer. The
// answers are values without clocks and sockets.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/persist"
	"github.com/vmapd/vmapd/sync/health"
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
type changes = persist.Map[*model.ServicePortName, int64]

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
	edit := v.changed.Edit(model.ServicePortKeys)
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
	if ns, ok := v.changed.Get(model.ServicePortKeys, &sp.Name); ok {
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
		return cmp.Or(model.ServicePortKeys.Compare(&a.Name, &b.Name), cmp.Compare(a.Family, b.Family))
	})
	return list
}

// Overview is the answer about the daemon as a whole.
type Overview struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Now     time.Time `json:"now"` // by the node's clock
	Node    string    `json:"node"`
	Backend string    `json:"backend"`
	With    string    `json:"with,omitempty"` // the variant of the programs that the backend runs
	Why     string    `json:"why"`            // the reason for choosing the backend
	Ready   bool      `json:"ready"`
	// Level is whether this node is well: a failure where connections fail, or rules are out of date. That a Service has
	// no endpoint, or none on this node with the policy Local, is a state.
	Level report.Level `json:"level"`
	// Problems are whole sentences about listeners and objects, Findings doctor's lines that are not ok, and Doctor
	// the total of its lines.
	Problems []string      `json:"problems,omitempty"`
	Findings []report.Line `json:"findings,omitempty"`
	Doctor   string        `json:"doctor"`
	// Entries of connection tracking, and their limit; 0: unknown.
	Tracked     int      `json:"trackedConnections"`
	TrackedMost int      `json:"trackedConnectionsLimit"`
	Families    []Family `json:"families"`
	States      States   `json:"servicePortsByState"` // of both families
}

// Family is the state of an IP family.
type Family struct {
	Family       string    `json:"family"`
	ServicePorts int       `json:"servicePorts"` // that are programmed
	Endpoints    int       `json:"endpoints"`    // of all service ports
	Synced       time.Time `json:"lastSync,omitzero"`
	Waiting      time.Time `json:"waitingSince,omitzero"`
}

// States are numbers of service ports.
type States map[State]int

func (s States) String() string {
	var words []string
	for _, state := range worstFirst {
		if n := s[state]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, state))
		}
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// AddTo adds what a view has, the times of syncs, and the level.
func (v *View) AddTo(o *Overview, h health.Status) {
	o.Ready, o.States = h.Ready, States{}
	for _, f := range model.Families {
		family := Family{Family: f.String(), Synced: h.Families[f].Synced, Waiting: h.Families[f].Waiting}
		if p := v.Families[f].Programmed; p != nil {
			family.ServicePorts = p.NumServicePorts()
			for sp := range p.ServicePorts() {
				family.Endpoints += len(sp.Endpoints)
			}
		}
		o.Families = append(o.Families, family)
		if v.Snapshot == nil {
			continue
		}
		for sp := range v.Snapshot.Family(f).ServicePorts() {
			state, _ := v.state(sp)
			o.States[state]++
		}
	}
	if v.Snapshot != nil {
		const most = 20
		var problems []string
		for _, p := range v.Snapshot.Problems {
			problems = append(problems, p.Error())
		}
		o.Problems = append(o.Problems, report.First(problems, most)...)
	}
	switch o.Level = report.OK; {
	case !o.Ready || o.States[Waiting] > 0:
		o.Level = report.Fail
	case len(o.Problems)+o.States[LeftOut] > 0:
		o.Level = report.Warn
	}
	for _, l := range o.Findings {
		o.Level = report.Worse(o.Level, l.Level)
	}
}

// Tables returns the state with a title and a text in each row, problems above what is fine.
func (o *Overview) Tables(now time.Time) []report.Table {
	var t report.Table
	t.Pair("Node", o.Node, "")
	if o.Ready {
		t.Pair("Ready", "yes", report.OK)
	} else {
		t.Pair("Ready", "no", report.Fail)
	}
	for _, p := range o.Problems {
		t.Pair("Problem", p, report.Warn)
	}
	t.Pair("Doctor", o.Doctor+" (vmapd doctor)", "")
	for _, l := range o.Findings {
		t.Pair("  "+string(l.Level), l.Name+": "+l.Text, l.Level)
	}
	t.Pair("Service ports", o.States.String(), "")
	for _, f := range o.Families {
		t.Pair(f.Family, f.text(now), "")
	}
	backend := o.Backend
	if o.With != "" {
		backend += " with " + o.With
	}
	t.Pair("Backend", fmt.Sprintf("%s (%s)", backend, o.Why), "")
	t.Pair("Version", o.Version, "")
	t.Pair("Started", report.Age(o.Started, now)+" ago", "")
	return []report.Table{t}
}

// LastSync is the time of the last sync of both families.
func (o *Overview) LastSync() time.Time {
	var at time.Time
	for _, f := range o.Families {
		if !f.Synced.IsZero() && (at.IsZero() || f.Synced.Before(at)) {
			at = f.Synced
		}
	}
	return at
}

func (f Family) text(now time.Time) string {
	if f.Synced.IsZero() {
		return "nothing is programmed yet"
	}
	text := fmt.Sprintf("%s, %s; last sync %s ago", report.Plural(f.ServicePorts, "service port"),
		report.Plural(f.Endpoints, "endpoint"), report.Age(f.Synced, now))
	if !f.Waiting.IsZero() {
		text += fmt.Sprintf("; a change waits for %s", report.Age(f.Waiting, now))
	}
	return text
}

package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/health"
)

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

func (o *Overview) level() report.Level {
	level := report.OK
	if len(o.Problems) > 0 || o.States[LeftOut] > 0 {
		level = report.Warn
	}
	if !o.Ready || o.States[Waiting] > 0 {
		level = report.Fail
	}
	for _, l := range o.Findings {
		level = report.Worse(level, l.Level)
	}
	return level
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
		problems := v.Snapshot.Problems()
		for _, p := range problems[:min(most, len(problems))] {
			o.Problems = append(o.Problems, p.Error())
		}
		if more := len(problems) - most; more > 0 {
			o.Problems = append(o.Problems, fmt.Sprintf("and %d more problems of objects; the log has them", more))
		}
	}
	o.Level = o.level()
}

// Tables returns the state with a title and a text in each row, problems above what is fine.
func (o *Overview) Tables(now time.Time) []report.Table {
	var t report.Table
	row := func(title, text string, r report.Row) {
		r.Cells, r.ID = []string{title, text}, title+r.ID
		t.Rows = append(t.Rows, r)
	}
	row("Node", o.Node, report.Row{})
	if o.Ready {
		row("Ready", "yes", report.Row{Level: report.OK})
	} else {
		row("Ready", "no", report.Row{Level: report.Fail})
	}
	for _, p := range o.Problems {
		row("Problem", p, report.Row{Level: report.Warn, ID: p})
	}
	row("Doctor", o.Doctor+" (vmapd doctor)", report.Row{})
	for _, l := range o.Findings {
		row("  "+string(l.Level), l.Name+": "+l.Text, report.Row{Level: l.Level, ID: l.Name + l.Text})
	}
	row("Service ports", o.States.String(), report.Row{})
	for _, f := range o.Families {
		key := fmt.Sprint(f.Family, f.ServicePorts, f.Endpoints, f.Waiting.IsZero())
		row(f.Family, f.text(now), report.Row{Key: key})
	}
	backend := o.Backend
	if o.With != "" {
		backend += " with " + o.With
	}
	row("Backend", fmt.Sprintf("%s (%s)", backend, o.Why), report.Row{})
	if o.TrackedMost > 0 {
		text := fmt.Sprintf("%d of at most %d entries", o.Tracked, o.TrackedMost)
		row("Connection tracking", text, report.Row{Key: "tracking"})
	}
	row("Version", o.Version, report.Row{})
	row("Started", report.Age(o.Started, now)+" ago", report.Row{Key: o.Started.String()})
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

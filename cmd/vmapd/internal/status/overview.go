package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// Overview is the answer about the daemon as a whole.
type Overview struct {
	Daemon
	Families []Family `json:"families"`
	States   States   `json:"servicePortsByState"` // of both families
}

// Daemon is the part of an Overview that only the daemon knows.
type Daemon struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Now     time.Time `json:"now"` // by the node's clock
	Node    string    `json:"node"`
	Backend string    `json:"backend"`
	With    string    `json:"with,omitempty"` // the variant of the programs that the backend runs
	Why     string    `json:"why"`            // the reason for choosing the backend
	Ready   bool      `json:"ready"`
	// Problems are whole sentences, those of objects last.
	Problems []string `json:"problems,omitempty"`
	// FastPath says whether connections take the fast path, by which devices, and how many; "": it is off.
	FastPath string `json:"fastPath,omitempty"`
	// Entries of connection tracking, and their limit; 0: unknown.
	Tracked     int         `json:"trackedConnections"`
	TrackedMost int         `json:"trackedConnectionsLimit"`
	Doctor      Examined    `json:"doctor"`
	Waiting     []time.Time `json:"-"` // by family: since when a change waits; zero: none does
	Synced      []time.Time `json:"-"` // by family: the last success
}

// Examined is the result of the last examination of the node.
type Examined struct {
	At       time.Time     `json:"at,omitzero"` // zero: there was none yet
	Total    string        `json:"total,omitempty"`
	Findings []report.Line `json:"findings,omitempty"` // those that are not ok
}

// Family is the state of an IP family.
type Family struct {
	Family       string    `json:"family"`
	ServicePorts int       `json:"servicePorts"` // that are programmed
	Endpoints    int       `json:"endpoints"`    // of all service ports
	Synced       time.Time `json:"lastSync,omitzero"`
	Waiting      time.Time `json:"waitingSince,omitzero"`
	Error        string    `json:"error,omitempty"`
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

// someProblems is the number of objects' problems in an Overview.
const someProblems = 20

// Overview returns the state as a whole.
func (v *View) Overview(d Daemon) Overview {
	out := Overview{Daemon: d, States: States{}}
	for _, f := range model.Families {
		out.Families = append(out.Families, v.family(f, d))
		if v.Snapshot == nil {
			continue
		}
		for sp := range v.Snapshot.Family(f).ServicePorts() {
			state, _ := v.state(sp)
			out.States[state]++
		}
	}
	if v.Snapshot != nil {
		problems := v.Snapshot.Problems()
		for _, p := range problems[:min(someProblems, len(problems))] {
			out.Problems = append(out.Problems, p.Error())
		}
		if more := len(problems) - someProblems; more > 0 {
			out.Problems = append(out.Problems, fmt.Sprintf("and %d more problems of objects; the log has them", more))
		}
	}
	return out
}

func (v *View) family(f model.Family, d Daemon) Family {
	family := &v.Families[f]
	out := Family{Family: f.String(), Synced: rounded(d.Synced[f]), Waiting: rounded(d.Waiting[f]), Error: family.Error}
	if family.Programmed != nil {
		out.ServicePorts = family.Programmed.NumServicePorts()
		for sp := range family.Programmed.ServicePorts() {
			out.Endpoints += len(sp.Endpoints)
		}
	}
	return out
}

// rounded returns a time in UTC and in whole seconds; the zero time stays.
func rounded(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Second)
}

// Tables returns the state with a title and a text in each row, problems above what is fine.
func (o *Overview) Tables(now time.Time) []report.Table {
	var t report.Table
	row := func(title, text string, r report.Row) {
		r.Cells = []string{title, text}
		r.ID = title + r.ID
		t.Rows = append(t.Rows, r)
	}
	row("Node", o.Node, report.Row{})
	if o.Ready {
		row("Ready", "yes", report.Row{Level: report.OK})
	} else {
		row("Ready", "no", report.Row{Level: report.Fail})
	}
	for _, f := range o.Families {
		if f.Error != "" {
			row(f.Family, "the last sync failed: "+f.Error, report.Row{Level: report.Fail, ID: " error"})
		}
	}
	for _, p := range o.Problems {
		row("Problem", p, report.Row{Level: report.Warn, ID: p})
	}
	row("Doctor", cmp.Or(o.Doctor.Total, "not examined yet")+" (vmapd doctor)", report.Row{})
	for _, l := range o.Doctor.Findings {
		row("  "+string(l.Level), l.Name+": "+l.Text, report.Row{Level: l.Level, ID: l.Name + l.Text})
	}
	row("Service ports", o.States.String(), report.Row{})
	for _, f := range o.Families {
		row(f.Family, f.text(now), report.Row{Key: fmt.Sprint(f.Family, f.ServicePorts, f.Endpoints, f.Waiting.IsZero())})
	}
	backend := o.Backend
	if o.With != "" {
		backend += " with " + o.With
	}
	row("Backend", fmt.Sprintf("%s (%s)", backend, o.Why), report.Row{})
	if o.FastPath != "" {
		row("Fast path", o.FastPath, report.Row{Key: "fast path"})
	}
	if o.TrackedMost > 0 {
		row("Connection tracking", fmt.Sprintf("%d of at most %d entries", o.Tracked, o.TrackedMost), report.Row{Key: "tracking"})
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

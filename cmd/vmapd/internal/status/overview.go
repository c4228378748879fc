package status

import (
	"time"

	"github.com/vmapd/vmapd/model"
)

// Overview is the answer about the daemon as a whole.
type Overview struct {
	Daemon
	Families     []Family  `json:"families"`
	ServicePorts int       `json:"servicePorts"` // of both families
	ByState      []Number  `json:"byState"`      // service ports, by state
	Problems     []Problem `json:"objectProblems,omitempty"`
	MoreProblems int       `json:"moreObjectProblems,omitempty"` // than these
	Rounds       []Round   `json:"rounds,omitempty"`             // the latest last
}

// Daemon is the part of an Overview that only the daemon knows.
type Daemon struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Node    string    `json:"node"`
	Backend string    `json:"backend"`
	With    string    `json:"with,omitempty"` // the variant of the programs that the backend runs
	Why     string    `json:"why"`            // the reason for choosing the backend
	Ready   bool      `json:"ready"`
	Healthy bool      `json:"healthy"`
	// NotEligible is the reason for which load balancers must not use the node; "": they may.
	NotEligible  string   `json:"notEligible,omitempty"`
	OtherProxies []string `json:"otherProxies,omitempty"` // signs of them
	Leftovers    string   `json:"leftovers,omitempty"`    // of other proxies or backends
	Notes        []string `json:"problems,omitempty"`     // whole sentences
	Counters     bool     `json:"serviceCounters"`
	// FastPath says whether connections take the fast path, by which devices, and how many; "": it is off.
	FastPath string `json:"fastPath,omitempty"`
	// Entries of connection tracking, and their limit; 0: unknown.
	Tracked     int         `json:"trackedConnections"`
	TrackedMost int         `json:"trackedConnectionsLimit"`
	Waiting     []time.Time `json:"-"` // by family: since when a change waits; zero: none does
	Synced      []time.Time `json:"-"` // by family: the last success
}

// Family is the state of an IP family.
type Family struct {
	Family       string    `json:"family"`
	ServicePorts int       `json:"servicePorts"` // that are programmed
	Endpoints    int       `json:"endpoints"`    // of all service ports
	First        time.Time `json:"first,omitzero"`
	Synced       time.Time `json:"lastSync,omitzero"`
	Waiting      time.Time `json:"waitingSince,omitzero"`
	Error        string    `json:"error,omitempty"`
}

// Number is the number of service ports in a state.
type Number struct {
	State  State `json:"state"`
	Number int   `json:"number"`
}

// someProblems is the number of objects' problems in an Overview.
const someProblems = 20

// Overview returns the state as a whole.
func (v *View) Overview(d Daemon) Overview {
	out := Overview{Daemon: d, Rounds: v.Rounds}
	states := map[State]int{}
	for _, f := range model.Families {
		family := &v.Families[f]
		one := Family{
			Family: f.String(), First: rounded(family.first), Synced: rounded(d.Synced[f]), Waiting: rounded(d.Waiting[f]), Error: family.Error,
		}
		if family.Programmed != nil {
			one.ServicePorts = family.Programmed.NumServicePorts()
			for sp := range family.Programmed.ServicePorts() {
				one.Endpoints += len(sp.Endpoints)
			}
		}
		out.Families = append(out.Families, one)
		if v.Snapshot == nil {
			continue
		}
		for sp := range v.Snapshot.Family(f).ServicePorts() {
			out.ServicePorts++
			state, _ := stateOf(sp)
			if !family.isProgrammed(sp) {
				state = Waiting
			}
			states[state]++
		}
	}
	for _, s := range []State{Forwarded, Partly, Refused, Dropped, Waiting, LeftOut} {
		if states[s] > 0 {
			out.ByState = append(out.ByState, Number{s, states[s]})
		}
	}
	if v.Snapshot != nil {
		for i, p := range v.Snapshot.Problems() {
			if i >= someProblems {
				out.MoreProblems++
				continue
			}
			out.Problems = append(out.Problems, newProblem(p))
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

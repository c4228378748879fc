package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Daemon compares the daemon's decision with the kernel and with the API server.
type Daemon struct {
	// Pending are changes that wait for a round, and Error is that of the last round.
	Pending int    `json:"pendingChanges,omitempty"`
	Error   string `json:"error,omitempty"`
	// Objects is the result of the objects as they are now, if it differs from the daemon's.
	Objects string `json:"objects,omitempty"`
	// Compared says what of the kernel was compared. Kernel are the differences of that from what the daemon
	// wants, if there are any, and NotCompared is the reason if they say nothing about this connection.
	Compared    string `json:"compared,omitempty"`
	Kernel      string `json:"kernel,omitempty"`
	NotCompared string `json:"notCompared,omitempty"`
	// Remembered is the kernel's session affinity for the client, if the Service has it; nil with IPVS.
	Remembered *Remembered `json:"remembered,omitempty"`
}

// Remembered is an endpoint to which a client comes back.
type Remembered struct {
	Endpoint string        `json:"endpoint,omitempty"` // empty: the kernel remembers none
	Until    time.Time     `json:"until,omitzero"`     // each connection begins the time anew
	Left     time.Duration `json:"-"`
	Used     bool          `json:"used,omitempty"` // the endpoint still gets connections
}

func (r *Remembered) say() string {
	switch {
	case r.Endpoint == "":
		return "Session affinity: the kernel remembers no endpoint for this client; its next connection goes to any of them."
	case !r.Used:
		return fmt.Sprintf("Session affinity: the kernel remembers %s for this client, which gets no connections any more; the next one goes to another endpoint.", r.Endpoint)
	}
	return fmt.Sprintf("Session affinity: this client is remembered for endpoint %s until %s, for another %v.", r.Endpoint, r.Until.Format("2006-01-02 15:04:05 UTC"), r.Left)
}

// Outcome is the result of a connection, for comparisons.
type Outcome struct {
	Verdict model.Verdict // NotOurs counts as Forwarded to its own destination
	To      map[netip.AddrPort]bool
}

// OutcomeOf returns the outcome of a decision; the value of To is whether the source is masqueraded.
func OutcomeOf(d model.Decision) Outcome {
	o := Outcome{Verdict: d.Verdict, To: map[netip.AddrPort]bool{}}
	if d.Verdict == model.NotOurs {
		o.Verdict = model.Forwarded
		o.To[d.Dest] = false
	}
	for _, t := range d.Targets {
		o.To[t.Addr] = t.SNAT.Masquerade()
	}
	return o
}

// Equal reports whether two outcomes are the same.
func (o Outcome) Equal(p Outcome) bool {
	if o.Verdict != p.Verdict || len(o.To) != len(p.To) {
		return false
	}
	for to, masquerade := range o.To {
		if m, ok := p.To[to]; !ok || m != masquerade {
			return false
		}
	}
	return true
}

func (o Outcome) String() string {
	if o.Verdict != model.Forwarded {
		return map[model.Verdict]string{model.Rejected: "refused", model.Dropped: "dropped"}[o.Verdict]
	}
	var list []string
	for to, masquerade := range o.To {
		text := to.String()
		if masquerade {
			text += " with this node's source address"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	more := ""
	if n := len(list); n > maxRows {
		list, more = list[:maxRows], fmt.Sprintf(" and %d more", n-maxRows)
	}
	return "forwarded to " + strings.Join(list, ", ") + more
}

// Compare adds the comparison to an explanation, as its last step.
func (e *Explanation) Compare(d Daemon) {
	e.Daemon = &d
	s := Step{Text: "The daemon on this node has decided this."}
	switch {
	case d.Kernel != "":
		s.Lines = append(s.Lines, fmt.Sprintf("The kernel differs (compared: %s): %s.", d.Compared, d.Kernel))
	case d.NotCompared != "":
		s.Lines = append(s.Lines, "The kernel was not compared: "+d.NotCompared+".")
	default:
		s.Lines = append(s.Lines, fmt.Sprintf("The kernel has the same (compared: %s).", d.Compared))
	}
	if d.Remembered != nil {
		s.Lines = append(s.Lines, d.Remembered.say())
	}
	if d.Objects != "" {
		s.Lines = append(s.Lines, fmt.Sprintf("The objects of now lead to another result: the connection would be %s.", d.Objects))
	}
	switch {
	case d.Error != "":
		s.Lines = append(s.Lines, "The last change has failed: "+d.Error)
	case d.Pending > 0:
		s.Lines = append(s.Lines, fmt.Sprintf("%d changes of Services and EndpointSlices are still to be programmed.", d.Pending))
	}
	e.Steps = append(e.Steps, s)
	switch {
	case d.Kernel != "":
		e.Conclusion += "; but the kernel differs from what the daemon wants"
		e.next("Why does the kernel differ? vmapd doctor has all differences; vmapd trace follows one connection.")
	case d.Objects != "" && d.Error == "":
		e.next("Has the daemon heard of the change? vmapd doctor has the API server's last word.")
	}
}

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Table has a title and a text in each row.
func (o Overview) Table(wide bool, now time.Time) Table {
	var t Table
	row := func(title, text string) { t.Rows = append(t.Rows, Row{Cells: []string{title, text}}) }
	aging := func(title, text, key string) {
		t.Rows = append(t.Rows, Row{Cells: []string{title, text}, Key: title + key})
	}
	row("Node", o.Node)
	row("Version", o.Version)
	row("Backend", o.backend())
	aging("Up", age(o.Started, now), o.Started.String())
	row("Ready", yesNo(o.Ready))
	if !o.Healthy {
		row("Healthy", "no: changes have waited for more than twice the sync period")
	}
	if o.NotEligible != "" {
		row("Load balancers", "must not use this node: "+o.NotEligible)
	}
	for _, f := range o.Families {
		aging(f.Family, f.text(now), fmt.Sprint(f.ServicePorts, f.Endpoints, f.Waiting.IsZero()))
		if f.Error != "" {
			row(f.Family, "the last sync failed: "+f.Error)
		}
	}
	row("Service ports", o.states())
	if o.TrackedMost > 0 {
		aging("Connection tracking", fmt.Sprintf("%d of at most %d entries", o.Tracked, o.TrackedMost), "")
	}
	if o.FastPath != "" {
		aging("Fast path", o.FastPath, "")
	}
	if text := o.rounds(now); text != "" {
		aging("Syncs", text, o.Rounds[len(o.Rounds)-1].Started.String())
	}
	for _, p := range o.OtherProxies {
		row("Other proxy", p)
	}
	if o.Leftovers != "" {
		row("Leftovers", o.Leftovers)
	}
	for _, n := range o.Notes {
		row("Problem", n)
	}
	for _, p := range o.Problems {
		row("Object", p.String())
	}
	if o.MoreProblems > 0 {
		row("Object", fmt.Sprintf("and %d more problems", o.MoreProblems))
	}
	if wide {
		for _, r := range o.Rounds {
			aging("Sync", r.text(now), r.Started.String())
		}
	}
	return t
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (o Overview) backend() string {
	name := o.Backend
	if o.With != "" {
		name += " with " + o.With
	}
	return fmt.Sprintf("%s (%s)", name, o.Why)
}

func (f Family) text(now time.Time) string {
	if f.First.IsZero() {
		return "nothing is programmed yet"
	}
	text := fmt.Sprintf("%d service ports, %d endpoints; last sync %s ago", f.ServicePorts, f.Endpoints, cmp.Or(age(f.Synced, now), "-"))
	if !f.Waiting.IsZero() {
		text += fmt.Sprintf("; a change waits for %s", age(f.Waiting, now))
	}
	return text
}

func (o Overview) states() string {
	var words []string
	for _, n := range o.ByState {
		words = append(words, fmt.Sprintf("%d %s", n.Number, n.State))
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// rounds describes the time that the last rounds took.
func (o Overview) rounds(now time.Time) string {
	if len(o.Rounds) == 0 {
		return ""
	}
	var took []float64
	for _, r := range o.Rounds {
		took = append(took, r.Seconds)
	}
	slices.Sort(took)
	last := o.Rounds[len(o.Rounds)-1]
	return fmt.Sprintf("last %s ago, %s; median of the last %d: %s, longest %s", age(last.Started, now), short(last.Seconds),
		len(took), short(took[len(took)/2]), short(took[len(took)-1]))
}

func (r Round) text(now time.Time) string {
	text := fmt.Sprintf("%s ago, %s: %d Services and %d EndpointSlices had changed", age(r.Started, now), short(r.Seconds), r.Services, r.EndpointSlices)
	if r.Full {
		text += "; compared with the kernel's rules"
	}
	if r.Error != "" {
		text += "; failed: " + r.Error
	}
	return text
}

func short(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

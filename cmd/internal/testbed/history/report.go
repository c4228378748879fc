package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Report is the result of a check.
type Report struct {
	Snapshots, Passes int
	Operations        int
	Middle            int // operations during which an Apply was under way
	Contradictions    int
	Lost              int      // contradictions that are Silent
	Texts             []string // of the first contradictions
	counts            map[kind]int
}

// kind is a row and a column of the table.
type kind struct {
	result Result
	how    string // for Answered: the source that the endpoint saw
	rule   Rule
	column string
}

// mostTexts bounds Report.Texts.
const mostTexts = 10

func (r *Report) count(o *Operation, rule Rule, middle bool) {
	r.Operations++
	if middle {
		r.Middle++
	}
	if r.counts == nil {
		r.counts = map[kind]int{}
	}
	k := kind{result: o.Result, rule: rule, column: fmt.Sprintf("%v %v", client(o), o.Protocol)}
	if o.Result == Answered {
		k.how = "own source"
		if o.Seen != o.Source {
			k.how = "masqueraded"
		}
	}
	r.counts[k]++
}

// client says where an operation came from.
func client(o *Operation) string {
	switch {
	case o.Node:
		return "node"
	case o.Pod:
		return "pod"
	}
	return "outside"
}

func (r *Report) contradict(o *Operation, text string) {
	r.Contradictions++
	if o.Result == Silent {
		r.Lost++
	}
	if len(r.Texts) < mostTexts {
		r.Texts = append(r.Texts, text)
	}
}

// Add adds the numbers of another report.
func (r *Report) Add(other Report) {
	r.Snapshots += other.Snapshots
	r.Passes += other.Passes
	r.Operations += other.Operations
	r.Middle += other.Middle
	r.Contradictions += other.Contradictions
	r.Lost += other.Lost
	r.Texts = append(r.Texts, other.Texts...)
	r.Texts = r.Texts[:min(len(r.Texts), mostTexts)]
	if r.counts == nil {
		r.counts = map[kind]int{}
	}
	for k, n := range other.counts {
		r.counts[k] += n
	}
}

// Count is the number of operations with a result that a rule made right.
func (r *Report) Count(result Result, rule Rule) int {
	n := 0
	for k, some := range r.counts {
		if k.result == result && k.rule == rule {
			n += some
		}
	}
	return n
}

// String is a table of the operations by kind, with a line of sums above it.
func (r *Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d operations, %d of them during an Apply; %d snapshots, %d passes over flows; %d contradictions, %d of them lost\n",
		r.Operations, r.Middle, r.Snapshots, r.Passes, r.Contradictions, r.Lost)
	var rows []kind
	var columns []string
	for k := range r.counts {
		columns = append(columns, k.column)
		k.column = ""
		rows = append(rows, k)
	}
	slices.Sort(columns)
	columns = slices.Compact(columns)
	slices.SortFunc(rows, func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.result, b.result), strings.Compare(a.how, b.how))
	})
	w := tabwriter.NewWriter(&s, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t%s\t\n", strings.Join(columns, "\t"))
	for _, row := range slices.Compact(rows) {
		fmt.Fprintf(w, "%v, %v %s\t", row.rule, row.result, row.how)
		for _, row.column = range columns {
			fmt.Fprintf(w, "%d\t", r.counts[row])
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // into memory
	return s.String()
}

// describe says what was seen, and what the snapshots in force decide.
func (h *History) describe(o *Operation) string {
	var s strings.Builder
	from := fmt.Sprintf("%s %v:%d", client(o), o.Source, o.SourcePort)
	fmt.Fprintf(&s, "%v from %s to %v, %v to %v: %v", o.Protocol, from, o.Dest, o.Start, o.End, o.Result)
	if o.Result == Answered {
		fmt.Fprintf(&s, " by %v, which saw %v", o.Endpoint, o.Seen)
	}
	if o.Before != nil {
		fmt.Fprintf(&s, "; before, at %v, by %v, which saw %v", o.Before.End, o.Before.Endpoint, o.Before.Seen)
	}
	h.describeDecisions(&s, o)
	for _, p := range h.passes[familyOf(o)] {
		if p.end >= o.Start-replyTime/4 && p.begin <= min(o.End, o.Start+replyTime) {
			fmt.Fprintf(&s, "\n  pass %v to %v", p.begin, p.end)
		}
	}
	for _, other := range h.operations {
		recent := other.Start < o.Start && other.End > o.Start-before
		if recent && other.Source == o.Source && other.Protocol == o.Protocol && other.Result == Answered && h.samePort(o, other) {
			fmt.Fprintf(&s, "\n  earlier to %v, %v to %v: by %v", other.Dest, other.Start, other.End, other.Endpoint)
		}
	}
	return s.String()
}

// before is how long before an operation its description begins.
const before = time.Second

// samePort reports whether two operations were for one service port when the second began.
func (h *History) samePort(o, other *Operation) bool {
	i := h.inForce(other.Start, other.Start)[0]
	a, b := h.decision(i, o).Port, h.decision(i, other).Port
	return a != nil && a == b
}

// describeDecisions has a line for each run of snapshots that decide the same: those in force, with a star, and those
// before them.
func (h *History) describeDecisions(s *strings.Builder, o *Operation) {
	during := h.during(o)
	all := h.inForce(max(0, o.Start-before), o.Start+replyTime)
	text := func(i int) string { return h.describeDecision(i, o) }
	for len(all) > 0 {
		n := 1
		for n < len(all) && text(all[n]) == text(all[0]) && slices.Contains(during, all[n]) == slices.Contains(during, all[0]) {
			n++
		}
		first, last := all[0], all[n-1]
		mark := " "
		if slices.Contains(during, first) {
			mark = "*"
		}
		fmt.Fprintf(s, "\n %s%d to %d (Apply from %v to %v, the last one's to %v): %s",
			mark, first, last, h.applied[first].begin, h.applied[first].end, h.applied[last].end, text(first))
		all = all[n:]
	}
}

func (h *History) describeDecision(i int, o *Operation) string {
	d := h.decision(i, o)
	var s strings.Builder
	fmt.Fprintf(&s, "%v, reason %d", d.Verdict, d.Why)
	if d.Port != nil {
		fmt.Fprintf(&s, ", %v, affinity %v, %v", d.Port.Name, d.Port.Affinity, d.Port.Algorithm)
	}
	for _, t := range d.Targets {
		fmt.Fprintf(&s, "; %v sees %v", t.Addr, h.source(o, t))
	}
	if d.Verdict == model.Forwarded && d.Port.Affinity == 0 {
		if t, ok := d.Chosen(); ok {
			fmt.Fprintf(&s, "; chosen %v", t.Addr)
		}
	}
	return s.String()
}

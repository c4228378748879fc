package preflight

import (
	"fmt"
	"io"
	"strings"
)

// width is the longest line of the text, where words allow it.
const width = 79

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	t := &text{}
	t.line("", "node %s: kube-proxy with mode %s before, vmapd with the backend %s after", orUnknown(r.Node), orUnknown(r.KubeProxy.Mode), r.Backend)
	switch {
	case r.NotCompared != "":
		t.line("", "No connection was compared: %s.", r.NotCompared)
	case r.Connections == 0:
		t.line("", "No connection was compared.")
	default:
		t.line("", "%s to %s were compared (%s).", count(r.Connections, "connection"), count(r.Services, "Service"), strings.Join(r.KubeProxy.Families, ", "))
	}
	if len(r.Differences) > 0 {
		t.line("", "")
		t.line("", "DIFFERENT after the switch:")
		for i, d := range r.Differences {
			t.difference(fmt.Sprintf("%d. ", i+1), d)
		}
	}
	if len(r.Notes) > 0 {
		t.line("", "")
		t.line("", "Also, without an effect on connections that are answered:")
		for _, d := range r.Notes {
			d.Example = nil
			t.difference("-  ", d)
		}
	}
	t.list("Not yet in kube-proxy's rules, or no longer in the cluster (no difference):", stale(r.Stale))
	t.list("Configuration:", r.Settings)
	t.list("Rules of kube-proxy that were not understood; what meets them is not compared:", r.Unread)
	t.line("", "")
	switch n := len(r.Differences); {
	case n > 0:
		t.line("", "=> %s", count(n, "difference"))
	case len(r.Unread) > 0, r.Connections == 0:
		t.line("", "=> no difference in what was compared")
	default:
		t.line("", "=> nothing is different")
	}
	_, err := io.WriteString(w, t.String())
	return err
}

// text is text in lines of the right length.
type text struct{ strings.Builder }

func (t *text) difference(head string, d Difference) {
	indent := strings.Repeat(" ", len(head))
	t.line(head, "%s", d.What)
	if len(d.Addresses) > 0 {
		t.line(indent, "addresses: %s", several(d.Addresses))
	}
	if len(d.Services) > 0 {
		t.line(indent, "%s: %s", count(len(d.Services), "Service"), several(d.Services))
	}
	if len(d.Clients) > 0 {
		t.line(indent, "clients: %s", several(d.Clients))
	}
	for _, rule := range d.Rules {
		t.line(indent, "rule: %s", rule)
	}
	if e := d.Example; e != nil {
		t.line(indent, "for example, from %s to %s:", e.From, e.To)
		t.line(indent, "  before: %s", e.Before)
		t.line(indent, "  after:  %s", e.After)
	}
	if d.Remedy != "" {
		t.line(indent, "remedy: %s", d.Remedy)
	}
	if d.Keep != "" {
		t.line(indent, "to keep it as it was: %s", d.Keep)
	}
}

func (t *text) list(head string, items []string) {
	if len(items) == 0 {
		return
	}
	t.line("", "")
	t.line("", "%s", head)
	for _, item := range items {
		t.line("-  ", "%s", item)
	}
}

// line writes a line and breaks it between words. Further lines are indented as far as the head.
func (t *text) line(head, format string, args ...any) {
	indent := strings.Repeat(" ", len(head))
	content := fmt.Sprintf(format, args...)
	lead := len(content) - len(strings.TrimLeft(content, " "))
	line := head + content[:lead]
	begun := false
	for word := range strings.FieldsSeq(content) {
		if begun && len(line)+1+len(word) > width {
			t.WriteString(line + "\n")
			line, begun = indent+strings.Repeat(" ", lead)+"  ", false
		}
		if begun {
			line += " "
		}
		line, begun = line+word, true
	}
	t.WriteString(strings.TrimRight(line, " ") + "\n")
}

func stale(list []Stale) []string {
	var items []string
	for _, s := range list {
		items = append(items, strings.TrimPrefix(s.Service+": "+s.What, ": "))
	}
	return items
}

// several returns the first items of a list and the number of the others.
func several[T ~string](list []T) string {
	const most = 5
	var b strings.Builder
	for i, item := range list {
		if i == most && len(list) > most+1 {
			fmt.Fprintf(&b, " and %d others", len(list)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(item))
	}
	return b.String()
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func orUnknown(s string) string {
	if s == "" {
		return "(unknown)"
	}
	return s
}

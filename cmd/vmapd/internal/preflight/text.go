package preflight

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var t text
	t.line("", "Node %s, %s: from %s, mode %s, to vmapd with the backend %s.", r.Node, count(r.Services, "Service"),
		strings.TrimSpace("kube-proxy "+r.Version), r.Mode, r.Backend)
	for i, d := range r.Differences {
		t.difference(fmt.Sprintf("%d. ", i+1), d)
	}
	if len(r.Notes) > 0 {
		t.line("", "")
		t.line("", "Notes: new connections are answered as before.")
	}
	for _, d := range r.Notes {
		t.difference("-  ", d)
	}
	if len(r.Configuration) > 0 {
		t.line("", "")
		t.line("", "Configuration:")
	}
	for _, note := range r.Configuration {
		t.line("-  ", "%s", note)
	}
	total := "nothing changes"
	if r.Differs() {
		total = count(len(r.Differences), "difference")
	}
	t.line("", "")
	t.line("", "=> %s, %s; without a Service here: %s", total, count(len(r.Notes), "note"), count(r.NotConcerned, "known difference"))
	_, err := io.WriteString(w, t.String())
	return err
}

// text is text in lines of the right length.
type text struct{ strings.Builder }

func (t *text) difference(head string, d Difference) {
	indent := strings.Repeat(" ", len(head))
	t.line("", "")
	t.line(head, "%s", d.Title)
	t.line(indent, "%s", d.Change)
	for _, detail := range several(d.Details) {
		t.line(indent+"- ", "%s", detail)
	}
	if len(d.Services) > 0 {
		t.line(indent, "%s: %s", count(len(d.Services), "Service"), strings.Join(several(d.Services), ", "))
	}
	if d.Remedy != "" {
		t.line(indent+"-> ", "%s", d.Remedy)
	}
	if d.Setting != nil {
		t.line(indent, "To keep it as it was, in %s:", d.Setting.File)
		t.WriteString(indent + "  " + d.Setting.YAML + "\n")
	}
}

// width is the longest line of the text, where words allow it.
const width = 79

// line writes a line and breaks it between words. Further lines are indented as far as the head.
func (t *text) line(head, format string, args ...any) {
	line, begun := head, false
	for word := range strings.FieldsSeq(fmt.Sprintf(format, args...)) {
		if begun && len(line)+1+len(word) > width {
			t.WriteString(line + "\n")
			line, begun = strings.Repeat(" ", len(head)), false
		}
		if begun {
			line += " "
		}
		line, begun = line+word, true
	}
	t.WriteString(line + "\n")
}

// several returns the first items of a list, and the number of the others.
func several(list []string) []string {
	const most = 5
	if len(list) <= most+1 {
		return list
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("and %d others", len(list)-most))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

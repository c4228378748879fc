package preflight

import (
	"fmt"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// Write writes the report for people.
func (r *Report) Write(t *report.Text) {
	t.Wrap(fmt.Sprintf("Node %s, %s: from %s, mode %s, to vmapd with the backend %s.", r.Node,
		report.Plural(r.Services, "Service"), strings.TrimSpace("kube-proxy "+r.Version), r.Mode, r.Backend), "", "")
	for i, d := range r.Differences {
		d.write(t, report.Warn, fmt.Sprintf("%d. ", i+1))
	}
	if len(r.Notes) > 0 {
		t.Say("")
		t.Say("Notes: new connections are answered as before.")
	}
	for _, d := range r.Notes {
		d.write(t, "", "-  ")
	}
	if len(r.Configuration) > 0 {
		t.Say("")
		t.Say("Configuration:")
	}
	for _, note := range r.Configuration {
		t.Wrap(note, "-  ", "   ")
	}
	level, total := report.OK, "nothing changes"
	if r.Differs() {
		level, total = report.Warn, report.Plural(len(r.Differences), "difference")
	}
	t.Say("")
	t.Verdict(level, "%s, %s; not applicable here: %s", total, report.Plural(len(r.Notes), "note"),
		report.Plural(r.NotConcerned, "known difference"))
}

// most is how many Services and details are shown.
const most = 5

func (d Difference) write(t *report.Text, l report.Level, head string) {
	indent := strings.Repeat(" ", len(head))
	t.Say("")
	t.Paragraph(l, d.Title, head, indent)
	t.Wrap(d.Change, indent, indent)
	for _, detail := range d.Details[:min(len(d.Details), most)] {
		t.Wrap(detail, indent+"- ", indent+"  ")
	}
	if more := len(d.Details) - most; more > 0 {
		t.Say("%s- and %d more", indent, more)
	}
	if len(d.Services) > 0 {
		t.Wrap(report.Plural(len(d.Services), "Service")+": "+report.List(d.Services, most), indent, indent)
	}
	if d.Remedy != "" {
		t.Wrap(d.Remedy, indent+"-> ", indent+"   ")
	}
	if d.Setting != nil {
		t.Say("%sTo keep it as it was, in %s:", indent, d.Setting.File)
		t.Say("%s  %s", indent, d.Setting.YAML)
	}
}

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// check is one check: of what the daemon knows, of the node, or of both. It returns no line if it does not apply.
type check struct {
	name     string
	ofDaemon func(*Daemon, *found)
	ofNode   func(Facts, *found)
}

// checks are in the order of their lines: those that explain others come first.
var checks = []check{
	{"daemon", (*Daemon).running, missingDaemon},
	{"configuration", (*Daemon).configuration, invalidConfiguration},
	{"version", nil, checkVersion},
	{"privilege", (*Daemon).privilege, checkPrivilege},
	{"kernel", (*Daemon).kernel, checkPrograms},
	{"api-server", (*Daemon).apiServer, nil},
	{"clock", (*Daemon).clock, nil},
	{"node", (*Daemon).node, nil},
	{"pod-ranges", (*Daemon).podRanges, nil},
	{"sync", (*Daemon).sync, nil},
	{"table", nil, func(f Facts, l *found) { *l = f.Table }},
	{"other-proxies", (*Daemon).otherProxies, checkOtherProxies},
	{"ports", (*Daemon).ports, nil},
	{"forwarding", nil, checkForwarding},
	{"ipv6", nil, checkIPv6},
	{"bridges", nil, checkBridges},
	{"firewall", nil, checkFirewall},
	{"conntrack", nil, checkConntrack},
	{"sysctls", nil, checkSysctls},
	{"fast-path", (*Daemon).fastPath, nil},
	{"connection-retry", (*Daemon).retry, nil},
}

// Checks returns the names of all checks.
func Checks() (names []string) {
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// Report is the result of all checks.
type Report struct {
	Node  string        `json:"node,omitempty"`
	At    time.Time     `json:"at"`
	Level report.Level  `json:"level"` // the worst of the lines
	Lines []report.Line `json:"lines"`
}

// Diagnose judges the node, and adds what the daemon says of itself.
func Diagnose(f Facts) Report {
	r := Report{Node: f.Wants.NodeName, At: f.At, Level: report.OK}
	if f.Daemon != nil {
		r.Lines = slices.Clone(f.Daemon.Lines)
	}
	for _, c := range checks {
		if c.ofNode != nil {
			var l found
			c.ofNode(f, &l)
			r.Lines = append(r.Lines, l.named(c.name)...)
		}
	}
	order := Checks()
	slices.SortStableFunc(r.Lines, func(a, b report.Line) int {
		return slices.Index(order, a.Name) - slices.Index(order, b.Name)
	})
	for _, l := range r.Lines {
		r.Level = report.Worse(r.Level, l.Level)
	}
	return r
}

func (l *found) named(check string) []report.Line {
	for i := range *l {
		(*l)[i].Name, (*l)[i].Text = check, strings.Join(strings.Fields((*l)[i].Text), " ")
	}
	return *l
}

// Failed returns the report of an examination that could not be completed.
func Failed(at time.Time, node string, reason any) Report {
	l := report.Line{
		Level: report.Fail, Name: "doctor", Text: fmt.Sprintf("doctor failed: %v", reason),
		Fix: "this is a bug in vmapd: report it, with the line of the log that has the stack",
	}
	return Report{Node: node, At: at, Level: report.Fail, Lines: []report.Line{l}}
}

// exitFail is the exit code of the command if a line is a failure; 1 is an error of the command itself.
const exitFail = 3

// ExitCode returns the exit code of the command. Warnings are no reason for one: many nodes have some for ever.
func (r Report) ExitCode() int {
	if r.Level == report.Fail {
		return exitFail
	}
	return 0
}

// Write writes the report for people.
func (r Report) Write(t *report.Text) { t.Lines(r.Lines) }

// found are the lines of one check.
type found []report.Line

func (l *found) add(level report.Level, fix, format string, args []any) {
	*l = append(*l, report.Line{Level: level, Fix: fix, Text: fmt.Sprintf(format, args...)})
}

func (l *found) fail(fix, format string, args ...any) { l.add(report.Fail, fix, format, args) }
func (l *found) warn(fix, format string, args ...any) { l.add(report.Warn, fix, format, args) }
func (l *found) good(format string, args ...any)      { l.add(report.OK, "", format, args) }

// otherwise adds a line that is ok, if there is none yet.
func (l *found) otherwise(format string, args ...any) {
	if len(*l) == 0 {
		l.good(format, args...)
	}
}

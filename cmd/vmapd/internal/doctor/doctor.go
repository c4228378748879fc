package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// check is one check. It returns no line if it does not apply; ofDaemon: without a daemon.
type check struct {
	name     string
	judge    func(*Facts, *found)
	ofDaemon bool
}

// checks are in the order of their lines: those that explain others come first.
var checks = []check{
	{"daemon", (*Facts).daemon, false},
	{"configuration", (*Facts).configuration, false},
	{"version", (*Facts).version, false},
	{"privilege", (*Facts).privilege, false},
	{"kernel", (*Facts).kernel, false},
	{"api-server", (*Facts).apiServer, true},
	{"clock", (*Facts).clock, true},
	{"node", (*Facts).node, true},
	{"pod-ranges", (*Facts).podRanges, true},
	{"sync", (*Facts).sync, true},
	{"table", func(f *Facts, l *found) { *l = f.Table }, true},
	{"other-proxies", (*Facts).otherProxies, false},
	{"ports", (*Facts).ports, true},
	{"listeners", (*Facts).listeners, true},
	{"forwarding", (*Facts).forwarding, false},
	{"pod-routes", (*Facts).podRoutes, true},
	{"ipv6", (*Facts).ipv6, false},
	{"bridges", (*Facts).bridges, false},
	{"firewall", (*Facts).firewall, false},
	{"conntrack", (*Facts).conntrack, false},
	{"sysctls", (*Facts).sysctls, true},
	{"fast-path", (*Facts).fastPath, true},
	{"connection-retry", (*Facts).retry, true},
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
	Node    string        `json:"node,omitempty"`
	Version string        `json:"version"` // of the program that examined
	At      time.Time     `json:"at"`
	Level   report.Level  `json:"level"` // the worst of the lines
	Lines   []report.Line `json:"lines"`
}

// Diagnose judges the node.
func Diagnose(f Facts) Report {
	r := Report{Node: f.Wants.NodeName, Version: f.Version, At: f.At, Level: report.OK}
	for _, c := range checks {
		if c.ofDaemon && f.Daemon == nil {
			continue
		}
		var l found
		c.judge(&f, &l)
		for _, line := range l {
			line.Name, line.Text = c.name, strings.Join(strings.Fields(line.Text), " ")
			r.Lines, r.Level = append(r.Lines, line), report.Worse(r.Level, line.Level)
		}
	}
	return r
}

// AskedBy warns if a program of another version than the daemon's prints the report.
func (r *Report) AskedBy(version string) {
	if r.Version == version {
		return
	}
	i := slices.IndexFunc(r.Lines, func(l report.Line) bool { return l.Name == "version" })
	if i >= 0 {
		r.Lines[i] = report.Line{
			Level: report.Warn, Name: "version", Text: fmt.Sprintf("the daemon is %s, and this program %s", r.Version, version),
			Fix: "use the program of the daemon's image: kubectl exec into vmapd's pod on this node",
		}
		r.Level = report.Worse(r.Level, report.Warn)
	}
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

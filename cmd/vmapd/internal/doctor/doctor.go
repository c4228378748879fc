package doctor

import (
	"fmt"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// Level is how bad a line is.
type Level = report.Level

// The levels.
const (
	OK   = report.OK
	Warn = report.Warn // some connections may fail, or will when something else changes
	Fail = report.Fail // connections fail, or the node's rules are out of date
)

// The checks, by the names that lines and metrics have.
const (
	CheckDaemon        = "daemon"
	CheckConfiguration = "configuration"
	CheckVersion       = "version"
	CheckPrivilege     = "privilege"
	CheckKernel        = "kernel"
	CheckAPIServer     = "api-server"
	CheckClock         = "clock"
	CheckNode          = "node"
	CheckPodRanges     = "pod-ranges"
	CheckRounds        = "rounds"
	CheckTable         = "table"
	CheckOtherProxies  = "other-proxies"
	CheckPorts         = "ports"
	CheckForwarding    = "forwarding"
	CheckIPv6          = "ipv6"
	CheckReversePath   = "reverse-path"
	CheckLocalnet      = "route-localnet"
	CheckBridges       = "bridges"
	CheckFirewall      = "firewall"
	CheckConntrack     = "conntrack"
	CheckSysctls       = "sysctls"
	CheckFastPath      = "fast-path"
	CheckDoctor        = "doctor" // only if the examination itself failed, see Failed
)

// check is one check. It returns no line if it does not apply.
type check struct {
	name  string
	lines func(Facts) []Line
}

// checks returns all checks in the order of their lines: those that explain others come first.
func checks() []check {
	return []check{
		{CheckDaemon, checkDaemon},
		{CheckConfiguration, checkConfiguration},
		{CheckVersion, checkVersion},
		{CheckPrivilege, checkPrivilege},
		{CheckKernel, checkKernel},
		{CheckAPIServer, checkAPIServer},
		{CheckClock, checkClock},
		{CheckNode, checkNode},
		{CheckPodRanges, checkPodRanges},
		{CheckRounds, checkRounds},
		{CheckTable, checkTable},
		{CheckOtherProxies, checkOtherProxies},
		{CheckPorts, checkPorts},
		{CheckForwarding, checkForwarding},
		{CheckIPv6, checkIPv6},
		{CheckReversePath, checkReversePath},
		{CheckLocalnet, checkLocalnet},
		{CheckBridges, checkBridges},
		{CheckFirewall, checkFirewall},
		{CheckConntrack, checkConntrack},
		{CheckSysctls, checkSysctls},
		{CheckFastPath, checkFastPath},
	}
}

// Checks returns the names of all checks.
func Checks() (names []string) {
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// Line is the result of a check, or one of its results.
type Line struct {
	Check    string `json:"check"`
	Level    Level  `json:"level"`
	Evidence string `json:"evidence"`
	Remedy   string `json:"remedy,omitempty"` // empty if the level is OK
}

// Report is the result of all checks.
type Report struct {
	Node  string    `json:"node,omitempty"`
	At    time.Time `json:"at"`
	Level Level     `json:"level"` // the worst of the lines
	Lines []Line    `json:"lines"`
}

// Diagnose judges facts.
func Diagnose(f Facts) Report {
	r := Report{Node: f.Wants.NodeName, At: f.At, Level: OK}
	for _, c := range checks() {
		for _, l := range c.lines(f) {
			l.Check = c.name
			r.Level = report.Worse(r.Level, l.Level)
			r.Lines = append(r.Lines, l)
		}
	}
	return r
}

// Failed returns the report of an examination that could not be completed.
func Failed(at time.Time, node string, reason any) Report {
	l := Line{
		Check: CheckDoctor, Level: Fail, Evidence: fmt.Sprintf("doctor failed: %v", reason),
		Remedy: "this is a defect of vmapd, which goes on without: report it with the line of the log that has the stack",
	}
	return Report{Node: node, At: at, Level: Fail, Lines: []Line{l}}
}

// exitFail is the exit code of the command if a line is a failure; 1 is an error of the command itself.
const exitFail = 3

// ExitCode returns the exit code of the command. Warnings are no reason for one: many nodes have some for ever.
func (r Report) ExitCode() int {
	if r.Level == Fail {
		return exitFail
	}
	return 0
}

// Write writes the report for people.
func (r Report) Write(t *report.Text) { t.Lines(Printable(r.Lines)) }

// Printable converts lines for a report.
func Printable(lines []Line) []report.Line {
	out := make([]report.Line, len(lines))
	for i, l := range lines {
		out[i] = report.Line{Level: l.Level, Name: l.Check, Text: l.Evidence, Fix: l.Remedy}
	}
	return out
}

// Bad returns the lines that are not ok.
func Bad(lines []Line) (bad []Line) {
	for _, l := range lines {
		if l.Level != OK {
			bad = append(bad, l)
		}
	}
	return bad
}

func good(evidence string) []Line { return []Line{{Level: OK, Evidence: evidence}} }

func bad(l Level, evidence, remedy string) []Line {
	return []Line{{Level: l, Evidence: evidence, Remedy: remedy}}
}

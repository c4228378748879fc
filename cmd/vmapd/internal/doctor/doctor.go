// Package doctor judges a node on which vmapd runs, or should run.
//
//	what the daemon knows: Daemon ──┐
//	the node: Examine, ReadRules ───┴─> Facts ─> Diagnose ─> Report ─> commands, page, metric
//
// The daemon examines its node itself, and its report is the only one: a command examines by the same checks where no
// daemon answers. Each line is about one check: ok, warn or fail, what was found, and the remedy. A line that is not ok
// names something that breaks connections, or will, on this node; a property of the node that is only unusual is part
// of an ok line.
package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/health"
	"github.com/vmapd/vmapd/sync/informer"
)

// check is one check. It returns no line if it does not apply.
type check struct {
	name     string
	judge    func(*Facts, *found)
	ofDaemon bool // it does not apply without a daemon
	ofRules  bool // nor with userspace, which has listeners in place of rules, and forwards no packets
}

// checks are in the order of their lines: those that explain others come first.
var checks = []check{
	{"daemon", (*Facts).daemon, false, false},
	{"configuration", (*Facts).configuration, false, false},
	{"version", (*Facts).version, false, false},
	{"privilege", (*Facts).privilege, false, false},
	{"kernel", (*Facts).kernel, false, false},
	{"api-server", (*Facts).apiServer, true, false},
	{"clock", (*Facts).clock, true, false},
	{"node", (*Facts).node, true, false},
	{"pod-ranges", (*Facts).podRanges, true, false},
	{"sync", (*Facts).sync, true, false},
	{"limits", (*Facts).limits, true, false},
	{"table", (*Facts).table, true, true},
	{"other-proxies", (*Facts).otherProxies, false, false},
	{"ports", (*Facts).ports, true, false},
	{"listeners", (*Facts).listeners, true, false},
	{"forwarding", (*Facts).forwarding, false, true},
	{"pod-routes", (*Facts).podRoutes, true, false},
	{"ipv6", (*Facts).ipv6, false, false},
	{"bridges", (*Facts).bridges, false, true},
	{"firewall", (*Facts).firewall, false, false},
	{"conntrack", (*Facts).conntrack, false, false},
	{"sysctls", (*Facts).sysctls, true, true},
	{"fast-path", (*Facts).fastPath, true, false},
	{"connection-retry", (*Facts).retry, true, false},
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
	// Differences are those of the kernel's rules from the expected ones, up to maxDifferences.
	Differences []string `json:"differences,omitempty"`
}

const maxDifferences = 10_000

// Diagnose judges the node.
func Diagnose(f Facts) Report {
	r := Report{
		Node: f.Wants.NodeName, Version: f.Version, At: f.At, Level: report.OK,
		Differences: report.First(f.Table.Differences, maxDifferences),
	}
	for _, c := range checks {
		if c.ofDaemon && f.Daemon == nil || c.ofRules && f.Wants.Backend == userspace {
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

// ExitFail is the exit code of the command if a line is a failure; 1 is an error of the command itself.
const ExitFail = 3

// ExitCode returns the exit code of the command. Warnings are no reason for one: many nodes have some for ever.
func (r Report) ExitCode() int {
	if r.Level == report.Fail {
		return ExitFail
	}
	return 0
}

// Write writes the report for people.
func (r Report) Write(t *report.Text) {
	t.Lines(r.Lines)
	for _, text := range r.Differences {
		t.Say("differs: %s", text)
	}
}

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

// userspace is the backend that forwards no packets.
const userspace = "userspace"

// Wants are the parts of the configuration and of the Services that the node must meet. Without a
// daemon, they come from flags alone.
type Wants struct {
	NodeName, Backend string
	PodRanges         []netip.Prefix           // of --cluster-cidr and of the Node
	LocalPods         []netip.Addr             // a few endpoints on this node
	Pods              []netip.Addr             // these, and a few on other nodes
	ServicePorts      [len(model.Families)]int // the number of service ports
	MasqueradeAll     bool                     // connections of pods to cluster IPs are masqueraded
	Conntrack         nodesetup.Conntrack
}

// Facts are everything that Diagnose judges.
type Facts struct {
	At      time.Time
	Version string  // of the program that examines
	Daemon  *Daemon // nil: none answers
	// NoDaemon is the reason for which none answers, and Other what to do if one is there all the same.
	NoDaemon error
	Other    string
	// ConfigError is the reason for which the last change of the configuration is refused or, without a daemon, for which
	// one with the same flags would not start.
	ConfigError string
	Table       Comparison
	Wants       Wants
	Host        Host
	// OtherProxies, their Leftovers, and why some of these could not be looked for.
	OtherProxies []string
	Leftovers    string
	Unexamined   error
	NoPrograms   []string // of those that the configured backend runs; known only without a daemon
}

// Daemon is what only the daemon knows.
type Daemon struct {
	Started time.Time
	Why     string // the reason for choosing the backend
	Health  health.Status
	Pending int      // changes that wait for a round
	Cluster *Cluster // nil with files
	// NodeUnread: not all objects have been read once, and nothing is known about the Node.
	NodeUnread bool
	Node       model.NodeState
	NodeObject model.NodeObject
	Pods       model.LocalPods
	// IsClusterIP reports whether an address is a Service's; nil: none is known.
	IsClusterIP func(netip.Addr) bool
	OverLimit   []model.ObjectRef // objects that are served in part
	Ports       []error           // of the daemon's own ports
	Listeners   []string          // what the listeners of the backend userspace do not serve
	FastPath    Ability           // whether connections take the fast path
	Retry       Ability           // whether the kernel chooses another endpoint where one does not answer
}

// Ability says whether something works that the configuration wants; "": it does not want it.
type Ability struct {
	Text  string
	Lacks bool
}

// Cluster is what is known about the API server.
type Cluster struct {
	Address string
	Heard   time.Time     // the last answer; zero: there was none
	Skew    time.Duration // of its clock against this node's
	Failing []informer.Failure
	Unread  []string // kinds that have not been read once: of these, nothing is known
}

// Host is what the node alone shows.
type Host struct {
	Kernel   string // its release
	NetAdmin bool   // this process has CAP_NET_ADMIN
	// Sysctls are the values of files below /proc/sys, without that prefix. One that could not be read is "".
	Sysctls map[string]string
	Addrs   []netip.Addr
	Bridges []Bridge       // with ports that lead to other network namespaces
	NoRoute []string       // pods that the kernel does not route to, with the reasons
	MTUs    map[int]string // of the routes to pods, with one of these
	// Tracked and TrackedMost are the use of connection tracking's table; TrackedMost is 0 without one, or a limit.
	Tracked, TrackedMost int
	Unset                []nodesetup.Write // settings that the configuration wants, and the node does not have
	ReadOnly             bool              // /proc/sys is
	Rules
}

// Rules are those of other programs.
type Rules struct {
	Chains []Chain  // base chains
	Unread []string // the errors of reading them
	// LegacyTables are the tables of iptables-legacy that may drop packets, by family.
	LegacyTables [len(model.Families)][]string
}

// Chain is a base chain of another program.
type Chain struct {
	others.Base
	// Rules is the number of rules that may drop or reject packets, in the chain or in those to which it leads.
	Rules int
	// Untracks are the rules there that keep packets from connection tracking, if the chain is before that, and
	// Translates those that replace the destination by an address.
	Untracks, Translates []others.Line
}

// Bridge is a bridge with its addresses.
type Bridge struct {
	Name  string
	Addrs []netip.Prefix
}

// WantsOf returns what the node must meet, without the names of the node and the backend. The snapshot
// is nil before the first lists are read.
func WantsOf(c nodesetup.Conntrack, traffic model.Config, s *model.Snapshot) Wants {
	w := Wants{
		Conntrack: c, MasqueradeAll: traffic.MasqueradeAll, PodRanges: traffic.LocalPods.ClusterCIDRs,
	}
	if s == nil {
		return w
	}
	w.PodRanges = slices.Concat(w.PodRanges, s.NodeObject.PodCIDRs)
	for _, f := range model.Families {
		family := s.Family(f)
		w.ServicePorts[f] = family.NumServicePorts()
		var local, remote []netip.Addr
		for sp := range family.ServicePorts() {
			for _, e := range sp.Endpoints {
				a := e.Addr.Addr()
				contains := func(r netip.Prefix) bool { return r.Contains(a) }
				switch {
				case e.Local && !slices.Contains(family.NodeAddrs, a):
					addFew(&local, a)
				case !e.Local && slices.ContainsFunc(w.PodRanges, contains):
					addFew(&remote, a)
				}
			}
		}
		w.LocalPods, w.Pods = append(w.LocalPods, local...), slices.Concat(w.Pods, local, remote)
	}
	return w
}

// addFew adds to the pods that doctor looks at: three on this node, and three on others, of each family.
func addFew(list *[]netip.Addr, a netip.Addr) {
	const few = 3
	if len(*list) < few && !slices.Contains(*list, a) {
		*list = append(*list, a)
	}
}

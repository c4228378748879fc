package doctor_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

var (
	now    = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	nodeIP = netip.MustParseAddr("192.168.0.2")
	pod    = netip.MustParseAddrPort("10.0.0.2:8080")
)

// healthy returns the facts of a node on which all is well.
func healthy() doctor.Facts {
	wants := doctor.Wants{
		NodeName: "node-1", Backend: "nftables", PodsBy: "ClusterCIDR", ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
		ServicePorts: [len(model.Families)]int{3, 3},
		NodeAddrs:    []netip.Addr{nodeIP}, LocalPods: []netip.Addr{pod.Addr()},
	}
	return doctor.Facts{
		At: now, Version: "v1", Wants: wants,
		Daemon: &doctor.Daemon{
			Version: "v1", Started: now.Add(-time.Hour), NetAdmin: true, Why: "the kernel has all required features",
			Cluster: &doctor.Cluster{Heard: now.Add(-2 * time.Second), Skew: -time.Second, Skewed: true, Address: "https://192.168.0.1:6443"},
			Node:    doctor.Node{Known: true, Addrs: []netip.Addr{nodeIP}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}},
			Families: []doctor.Rounds{
				{Family: "IPv4", Synced: now.Add(-time.Second), Healthy: true},
				{Family: "IPv6", Synced: now.Add(-time.Second), Healthy: true},
			},
			Table: &doctor.Table{},
		},
		Host: doctor.Host{
			Kernel: "6.18", NetAdmin: true,
			Sysctls: map[string]string{
				doctor.IPForward: "1", doctor.IPv6Forward: "1", doctor.IPv6Disabled: "0", doctor.ReversePathAll: "0", doctor.RouteLocalAll: "0",
				doctor.BridgeCalls[model.IPv4]: "1", doctor.BridgeCalls[model.IPv6]: "1",
				"net/ipv4/conf/eth0/rp_filter": "2", "net/ipv4/conf/eth0/forwarding": "1",
			},
			Interfaces: []doctor.Interface{
				{Name: "eth0", Addrs: []netip.Addr{nodeIP, netip.MustParseAddr("fd00::2")}},
				{Name: "eth1", Addrs: []netip.Addr{netip.MustParseAddr("192.168.7.2")}},
			},
			DefaultRoutes: [len(model.Families)]string{"eth0", "eth0"},
			Conntrack:     doctor.Conntrack{Known: true, Used: 100, Limit: 1000, InsertFailed: 3},
		},
	}
}

// podBridge is a bridge with pods.
func podBridge() []doctor.Bridge {
	addrs := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("fd00:10::1/64")}
	return []doctor.Bridge{{Name: "cni0", Addrs: addrs}}
}

func TestAHealthyNodeHasOnlyGoodLines(t *testing.T) {
	f := healthy()
	f.Daemon.FastPath = "on, between eth0 and pods0" // off, it has no line
	f.Host.Bridges = podBridge()                     // without one, there is no line
	r := doctor.Diagnose(f)
	if bad := doctor.Bad(r.Lines); len(bad) > 0 || r.Level != doctor.OK || r.ExitCode() != 0 {
		t.Errorf("exit code %d, %v", r.ExitCode(), bad)
	}
	var got []string
	for _, l := range r.Lines {
		got = append(got, l.Check)
	}
	if diff := cmp.Diff(doctor.Checks(), got); diff != "" {
		t.Errorf("checks with a line (-want +got):\n%s", diff)
	}
	for line := range strings.Lines(text(t, r)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// Each case breaks a healthy node, and wants exactly one line that is not ok.
func TestEachCheck(t *testing.T) {
	for _, tt := range []struct {
		check string
		level doctor.Level
		want  string
		spoil func(f *doctor.Facts)
	}{
		{"daemon", doctor.Fail, "no daemon answers: x", func(f *doctor.Facts) { f.Daemon, f.NoDaemon = nil, "no daemon answers: x" }},
		{"daemon", doctor.Fail, "the daemon at /s does not answer within 5s", func(f *doctor.Facts) {
			f.Daemon, f.NoDaemon, f.Hangs = nil, "the daemon at /s does not answer within 5s", true
			f.Host.Listening, f.Host.Leftovers = "nftables", "its own rules"
		}},
		{"configuration", doctor.Fail, "would not start with this configuration: bindAddress", func(f *doctor.Facts) { f.ConfigError = "bindAddress: x" }},
		{"configuration", doctor.Warn, "the last change is refused", func(f *doctor.Facts) { f.Daemon.ConfigError = "x" }},
		{"version", doctor.Warn, "the daemon is v0, and this program v1", func(f *doctor.Facts) { f.Daemon.Version = "v0" }},
		{"version", doctor.Fail, "the API server is v1.20.15, and vmapd needs 1.21 or newer", func(f *doctor.Facts) { f.Daemon.Cluster.Server = "v1.20.15" }},
		{"version", doctor.Warn, "the API server is v1.41.0-rc.0, and this vmapd knows Kubernetes up to 1.37", func(f *doctor.Facts) { f.Daemon.Cluster.Server = "v1.41.0-rc.0" }},
		{"privilege", doctor.Fail, "the daemon lacks CAP_NET_ADMIN", func(f *doctor.Facts) { f.Daemon.NetAdmin = false }},
		{"privilege", doctor.Warn, "this process lacks CAP_NET_ADMIN", func(f *doctor.Facts) { f.Host.NetAdmin = false }},
		{"kernel", doctor.Fail, "programs that the backend iptables runs are not installed: iptables", func(f *doctor.Facts) {
			f.Wants.Backend, f.Host.NoPrograms = "iptables", []string{"iptables"}
		}},
		{"api-server", doctor.Fail, "services can't be read from https://192.168.0.1:6443 for 10m00s (last answer 2s ago): refused", func(f *doctor.Facts) {
			f.Daemon.Cluster.Errors = []doctor.APIError{{Resource: "services", Since: now.Add(-10 * time.Minute), Error: "refused"}}
		}},
		{"api-server", doctor.Warn, "no answer yet", func(f *doctor.Facts) { f.Daemon.Cluster.Heard = time.Time{} }},
		{"api-server", doctor.Warn, "last answer 2s ago; services have not been read yet", func(f *doctor.Facts) { f.Daemon.Cluster.Unread = []string{"services"} }},
		{"node", doctor.Warn, `not known yet: it has not been read whether the cluster has a Node "node-1"`, func(f *doctor.Facts) {
			f.Daemon.Node = doctor.Node{Unread: true}
		}},
		{"clock", doctor.Warn, "this node's is 5m00s behind the API server's", func(f *doctor.Facts) { f.Daemon.Cluster.Skew = 5 * time.Minute }},
		{"node", doctor.Fail, `the cluster has no Node "node-1"`, func(f *doctor.Facts) { f.Daemon.Node = doctor.Node{Never: true} }},
		{"node", doctor.Fail, `the Node "node-1" is deleted`, func(f *doctor.Facts) { f.Daemon.Node = doctor.Node{} }},
		{"node", doctor.Warn, `the Node "node-1" has the taint x`, func(f *doctor.Facts) { f.Daemon.Node.NotEligible = "has the taint x" }},
		{"node", doctor.Fail, "no interface of this machine has an address", func(f *doctor.Facts) { f.Daemon.Node.Addrs = []netip.Addr{netip.MustParseAddr("192.168.0.77")} }},
		{"pod-ranges", doctor.Fail, "--cluster-cidr 10.9.0.0/16 has none of the pods on this node, such as 10.0.0.2", func(f *doctor.Facts) {
			f.Wants.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
		}},
		{"pod-ranges", doctor.Warn, "--cluster-cidr 10.9.0.0/16 does not contain 10.0.0.0/24, the Node's spec.podCIDRs", func(f *doctor.Facts) {
			f.Wants.ClusterCIDRs, f.Wants.LocalPods = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, nil
		}},
		{"rounds", doctor.Fail, "IPv6: the last sync failed; changes wait for 5s: x", func(f *doctor.Facts) {
			f.Daemon.Families[1].Error, f.Daemon.Families[1].Waiting = "x", now.Add(-5*time.Second)
		}},
		{"table", doctor.Fail, "in 2 operations, such as: add element", func(f *doctor.Facts) {
			f.Daemon.Table = &doctor.Table{Count: 2, Differences: []string{"add element"}}
		}},
		{"table", doctor.Warn, "can't be compared: IPv6: x", func(f *doctor.Facts) {
			f.Daemon.Table = &doctor.Table{Errors: []string{"IPv6: x"}}
		}},
		{"other-proxies", doctor.Fail, "kube-proxy came back", func(f *doctor.Facts) { f.Daemon.OtherProxies = []string{"kube-proxy came back"} }},
		{"other-proxies", doctor.Warn, "rules that another proxy left: 3", func(f *doctor.Facts) { f.Daemon.Leftovers = "3" }},
		{"ports", doctor.Warn, "address already in use", func(f *doctor.Facts) { f.Daemon.Ports = []string{"healthz server: address already in use"} }},
		{"forwarding", doctor.Fail, "net.ipv4.ip_forward is 0", func(f *doctor.Facts) { f.Host.Sysctls[doctor.IPForward] = "0" }},
		{"forwarding", doctor.Fail, "net.ipv6.conf.all.forwarding is 0", func(f *doctor.Facts) { f.Host.Sysctls[doctor.IPv6Forward] = "0" }},
		{"forwarding", doctor.Fail, "net.ipv4.conf.eth0.forwarding is 0", func(f *doctor.Facts) { f.Host.Sysctls["net/ipv4/conf/eth0/forwarding"] = "0" }},
		{"ipv6", doctor.Fail, "net.ipv6.conf.all.disable_ipv6 is 1, and 3 service ports", func(f *doctor.Facts) { f.Host.Sysctls[doctor.IPv6Disabled] = "1" }},
		{"ipv6", doctor.Fail, "the kernel has IPv6 switched off", func(f *doctor.Facts) { delete(f.Host.Sysctls, doctor.IPv6Disabled) }},
		{"reverse-path", doctor.Warn, "rp_filter is 1 (strict) on eth1", func(f *doctor.Facts) {
			f.Host.Sysctls["net/ipv4/conf/eth1/rp_filter"] = "1"
			f.Wants.NodeAddrs = append(f.Wants.NodeAddrs, netip.MustParseAddr("192.168.7.2"))
		}},
		{"firewall", doctor.Warn, "table ip filter, chain FORWARD (hook forward, priority 0), which is not vmapd's, may drop connections to Services: " +
			"its policy is drop, and 12 of its rules may drop or reject packets", func(f *doctor.Facts) {
			f.Host.Chains = []doctor.Chain{chain(others.Forward, true, 12)}
		}},
		{"firewall", doctor.Warn, "(hook input, priority 0), which is not vmapd's, may drop connections to Services: its policy is drop", func(f *doctor.Facts) {
			f.Wants.Backend, f.Host.Chains = "ipvs", []doctor.Chain{chain(others.Input, true, 0)} // IPVS takes packets there
		}},
		{"firewall", doctor.Warn, "table inet theirs, chain early, rule 3, which is not vmapd's, keeps packets from being tracked (NOTRACK), " +
			"one of 2 such rules at the hook prerouting: a connection", func(f *doctor.Facts) {
			f.Host.Chains = []doctor.Chain{untracking(-300)}
		}},
		{"firewall", doctor.Warn, "ip6tables-legacy has the tables raw, filter: their rules may drop connections to Services", func(f *doctor.Facts) {
			f.Host.LegacyTables[model.IPv6] = []string{"raw", "filter"}
		}},
		{"firewall", doctor.Warn, "list chains: x", func(f *doctor.Facts) { f.Host.Unread = []string{"list chains: x"} }},
		{"bridges", doctor.Fail, "net.bridge.bridge-nf-call-iptables is 0, and pods are ports of the bridge cni0", func(f *doctor.Facts) {
			f.Host.Bridges, f.Host.Sysctls[doctor.BridgeCalls[model.IPv4]] = podBridge(), "0"
		}},
		{"bridges", doctor.Fail, "net.bridge.bridge-nf-call-ip6tables is missing (the module br_netfilter is not loaded)", func(f *doctor.Facts) {
			f.Host.Bridges, f.Wants.ClusterCIDRs = podBridge(), append(f.Wants.ClusterCIDRs, netip.MustParsePrefix("fd00:10::/56"))
			delete(f.Host.Sysctls, doctor.BridgeCalls[model.IPv6])
		}},
		{"conntrack", doctor.Warn, "950 of at most 1000 entries", func(f *doctor.Facts) { f.Host.Conntrack.Used = 950 }},
		{"conntrack", doctor.Fail, "1000 of at most 1000 entries", func(f *doctor.Facts) { f.Host.Conntrack.Used = 1000 }},
		{"sysctls", doctor.Warn, "nf_conntrack_max should be 131072 (conntrack.maxPerCore) and is 7", func(f *doctor.Facts) {
			f.Host.Unset = []nodesetup.Write{{File: "nf_conntrack_max", Value: "131072", Have: "7", Why: "conntrack.maxPerCore"}}
		}},
	} {
		t.Run(tt.check+"/"+tt.want, func(t *testing.T) {
			f := healthy()
			tt.spoil(&f)
			r := doctor.Diagnose(f)
			bad := doctor.Bad(r.Lines)
			if len(bad) != 1 || bad[0].Check != tt.check || bad[0].Level != tt.level || !strings.Contains(bad[0].Evidence, tt.want) || bad[0].Remedy == "" {
				t.Errorf("want only %s %s %q with a remedy, got %s", tt.level, tt.check, tt.want, strings.Join(texts(bad), "\n"))
			}
			if want := map[doctor.Level]int{doctor.Fail: 3}[tt.level]; r.ExitCode() != want || r.Level != tt.level {
				t.Errorf("exit code %d, want %d; %s", r.ExitCode(), want, r.Level)
			}
		})
	}
}

// These are no reason for a warning.
func TestFalseAlarms(t *testing.T) {
	for name, change := range map[string]func(f *doctor.Facts){
		"strict reverse path on the uplink": func(f *doctor.Facts) { f.Host.Sysctls[doctor.ReversePathAll] = "1" },
		"no IPv6, and no Service that needs it": func(f *doctor.Facts) {
			f.Wants.ServicePorts[model.IPv6] = 0
			delete(f.Host.Sysctls, doctor.IPv6Disabled)
			delete(f.Host.Sysctls, doctor.IPv6Forward)
		},
		"pod ranges of the Node that the network plugin ignores": func(f *doctor.Facts) {
			f.Daemon.Node.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")}
		},
		"an API server a little newer":   func(f *doctor.Facts) { f.Daemon.Cluster.Server = "v1.40.2+k3s1" },
		"an API server a little older":   func(f *doctor.Facts) { f.Daemon.Cluster.Server = "v1.21.0" },
		"an API server of another brand": func(f *doctor.Facts) { f.Daemon.Cluster.Server = "devel" },
		"no --cluster-cidr":              func(f *doctor.Facts) { f.Wants.ClusterCIDRs = nil },
		"files and no cluster":           func(f *doctor.Facts) { f.Daemon.Cluster = nil },
		"a clock 3 s behind":             func(f *doctor.Facts) { f.Daemon.Cluster.Skew = 3 * time.Second },
		"no table was compared":          func(f *doctor.Facts) { f.Daemon.Table = &doctor.Table{Skipped: "x"} },
		"an old watch is silent":         func(f *doctor.Facts) { f.Daemon.Cluster.Heard = now.Add(-time.Hour) },
		"no connection tracking":         func(f *doctor.Facts) { f.Host.Conntrack = doctor.Conntrack{} },
		"a bridge past netfilter that is not the pods'": func(f *doctor.Facts) {
			f.Host.Bridges = []doctor.Bridge{{Name: "docker0", Addrs: []netip.Prefix{netip.MustParsePrefix("172.17.0.1/16")}}}
			f.Host.Sysctls[doctor.BridgeCalls[model.IPv4]] = "0"
		},
		"pods past netfilter, and all are masqueraded": func(f *doctor.Facts) {
			f.Host.Bridges, f.Host.Sysctls[doctor.BridgeCalls[model.IPv4]], f.Wants.MasqueradeAll = podBridge(), "0", true
		},
		"route_localnet": func(f *doctor.Facts) { f.Host.Sysctls[doctor.RouteLocalAll] = "1" },
		"rules of other programs, and a policy for the node": func(f *doctor.Facts) {
			f.Host.Chains = []doctor.Chain{chain(others.Prerouting, false, 3), chain(others.Forward, false, 1), chain(others.Input, true, 9)}
		},
		"rules of NOTRACK behind connection tracking": func(f *doctor.Facts) { f.Host.Chains = []doctor.Chain{untracking(0)} },
		"IPVS, which needs no tracking":               func(f *doctor.Facts) { f.Wants.Backend, f.Host.Chains = "ipvs", []doctor.Chain{untracking(-300)} },
		"iptables-legacy, which may be vmapd's": func(f *doctor.Facts) {
			f.Wants.Backend, f.Host.LegacyTables[model.IPv4] = "iptables", []string{"filter"}
		},
	} {
		f := healthy()
		change(&f)
		if bad := doctor.Bad(doctor.Diagnose(f).Lines); len(bad) > 0 {
			t.Errorf("%s: %s", name, strings.Join(texts(bad), "\n"))
		}
	}
}

// chain is one of another program's table "filter", with rules that may drop.
func chain(at others.Hook, drops bool, rules int) doctor.Chain {
	name := strings.ToUpper(string(at))
	return doctor.Chain{Base: others.Base{Place: others.Place{Family: "ip", Table: "filter", Chain: name}, Hook: at, Drops: drops}, Rules: rules}
}

// untracking is a chain with two rules that keep packets from being tracked.
func untracking(priority int32) doctor.Chain {
	at := others.Place{Family: "inet", Table: "theirs", Chain: "early"}
	return doctor.Chain{
		Base:     others.Base{Place: at, Hook: others.Prerouting, Priority: priority},
		Untracks: []others.Line{{Place: at, Position: 3}, {Place: at, Position: 4}},
	}
}

// A chain whose rules may drop is named, and the command that shows what they do.
func TestChainsOfOthersAreNamed(t *testing.T) {
	f := healthy()
	f.Host.Chains = []doctor.Chain{chain(others.Prerouting, false, 1), chain(others.Output, false, 0)}
	var got []string
	for _, l := range doctor.Diagnose(f).Lines {
		if l.Check == doctor.CheckFirewall {
			got = append(got, l.Evidence)
		}
	}
	want := []string{"table ip filter, chain PREROUTING (hook prerouting, priority 0), which is not vmapd's, may drop connections to Services: " +
		"1 of its rules may drop or reject packets; vmapd trace ADDRESS:PORT/PROTO shows whether a connection meets it"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func text(t *testing.T, r doctor.Report) string {
	t.Helper()
	var b strings.Builder
	if err := report.Print(&b, report.InText, r, r.Write); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// An error about one family hides no difference of the other.
func TestAnErrorHidesNoDifference(t *testing.T) {
	f := healthy()
	f.Daemon.Table = &doctor.Table{Count: 2, Differences: []string{"add element"}, Errors: []string{"IPv6: x"}}
	if bad := doctor.Bad(doctor.Diagnose(f).Lines); len(bad) != 2 || bad[0].Level != doctor.Fail || bad[1].Level != doctor.Warn {
		t.Errorf("got %v", texts(bad))
	}
}

// The daemon's own doctor does not praise a kernel for which the daemon fell back to another backend.
func TestTheBackendIsSaidWithItsReason(t *testing.T) {
	f := healthy()
	f.Wants.Backend, f.Daemon.Why = "ipvs", "the kernel lacks nft_hash"
	if lines := texts(doctor.Diagnose(f).Lines); !slices.Contains(lines, "ok kernel: the daemon uses ipvs: the kernel lacks nft_hash") {
		t.Errorf("got %v", lines)
	}
}

// The same cause for several kinds of objects is one line.
func TestOneCauseIsOneLine(t *testing.T) {
	f := healthy()
	for _, kind := range []string{"services", "nodes"} {
		f.Daemon.Cluster.Errors = append(f.Daemon.Cluster.Errors, doctor.APIError{Resource: kind, Since: now.Add(-time.Minute), Error: "connection refused"})
	}
	bad := doctor.Bad(doctor.Diagnose(f).Lines)
	if len(bad) != 1 || !strings.HasPrefix(bad[0].Evidence, "services, nodes can't be read") {
		t.Errorf("got %v", texts(bad))
	}
}

func texts(lines []doctor.Line) (list []string) {
	for _, l := range lines {
		list = append(list, fmt.Sprintf("%s %s: %s", l.Level, l.Check, l.Evidence))
	}
	return list
}

// The page has the output of a node whose FORWARD chain may drop.
func TestTroubleshootingHasATranscript(t *testing.T) {
	f := healthy()
	f.Host.Chains = []doctor.Chain{chain(others.Forward, true, 0)}
	page, err := os.ReadFile("../../deploy/TROUBLESHOOTING.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := text(t, doctor.Diagnose(f)); !strings.Contains(string(page), "```\n$ vmapd doctor\n"+want+"$ echo $?\n0\n```\n") {
		t.Errorf("the page lacks:\n%s", want)
	}
}

// What the configuration turns off is not said to be served.
func TestPortsThatAreOff(t *testing.T) {
	facts := healthy()
	facts.Daemon.PortsOff = []string{"metrics (--metrics-bind-address)"}
	for _, l := range doctor.Diagnose(facts).Lines {
		if l.Check == doctor.CheckPorts && (l.Level != doctor.OK || l.Evidence != "turned off by the configuration: metrics (--metrics-bind-address)") {
			t.Errorf("got %+v", l)
		}
	}
}

package doctor_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/health"
	"github.com/vmapd/vmapd/sync/informer"
)

var (
	now    = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	nodeIP = netip.MustParseAddr("192.168.0.2")
	pod    = netip.MustParseAddrPort("10.0.0.2:8080")
)

// world has the facts of a node and of its daemon.
type world struct{ doctor.Facts }

func (w *world) diagnose() doctor.Report { return doctor.Diagnose(w.Facts) }

// healthy returns a node on which all is well.
func healthy() *world {
	ranges := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}
	w := &world{
		Facts: doctor.Facts{
			At: now, Version: "v1",
			Wants: doctor.Wants{
				NodeName: "node-1", Backend: "nftables", PodRanges: ranges,
				ServicePorts: [len(model.Families)]int{3, 3}, LocalPods: []netip.Addr{pod.Addr()},
			},
			Host: doctor.Host{
				Kernel: "6.18", NetAdmin: true,
				Sysctls: map[string]string{
					doctor.IPForward: "1", doctor.IPv6Forward: "1", doctor.IPv6Disabled: "0",
					nodesetup.BridgeCalls[model.IPv4]: "1", nodesetup.BridgeCalls[model.IPv6]: "1",
				},
				Addrs:   []netip.Addr{nodeIP, netip.MustParseAddr("fd00::2")},
				Tracked: 100, TrackedMost: 1000,
			},
		},
	}
	w.Daemon = &doctor.Daemon{
		Started: now.Add(-time.Hour), Why: "the kernel has all required features",
		Health:  health.Status{At: now},
		Cluster: &doctor.Cluster{Heard: now.Add(-2 * time.Second), Skew: -time.Second, Address: "https://192.168.0.1:6443"},
		Node:    model.NodeState{Known: true},
		NodeObject: model.NodeObject{
			Addrs: []netip.Addr{nodeIP}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
		},
		Pods: model.LocalPods{ClusterCIDRs: ranges},
	}
	for _, f := range model.Families {
		w.Daemon.Health.Families[f] = health.FamilyStatus{Synced: now.Add(-time.Second), Healthy: true}
	}
	return w
}

// podBridge is a bridge with pods.
func podBridge() []doctor.Bridge {
	addrs := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("fd00:10::1/64")}
	return []doctor.Bridge{{Name: "cni0", Addrs: addrs}}
}

func TestAHealthyNodeHasOnlyGoodLines(t *testing.T) {
	w := healthy()
	w.Daemon.FastPath.Text = "on, between eth0 and pods0" // off, it has no line
	w.Daemon.Retry.Text = "on"
	w.Wants.Pods = w.Wants.LocalPods
	w.Host.Bridges = podBridge() // without one, there is no line
	r := w.diagnose()
	if bad := report.Bad(r.Lines); len(bad) > 0 || r.Level != report.OK || r.ExitCode() != 0 {
		t.Errorf("exit code %d, %v", r.ExitCode(), bad)
	}
	var got []string
	for _, l := range r.Lines {
		got = append(got, l.Name)
	}
	checks := slices.DeleteFunc(doctor.Checks(), func(check string) bool { return check == "listeners" }) // of userspace
	if diff := cmp.Diff(checks, got); diff != "" {
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
		level report.Level
		want  string
		spoil func(w *world)
	}{
		{"daemon", report.Fail, "no daemon answers: x", func(w *world) { w.Daemon, w.NoDaemon = nil, fmt.Errorf("%w: x", socket.ErrNoDaemon) }},
		{"daemon", report.Fail, "the daemon at /s does not answer within 5s", func(w *world) {
			w.Daemon, w.NoDaemon = nil, errors.New("the daemon at /s does not answer within 5s")
			w.OtherProxies, w.Leftovers = []string{"nftables"}, "its own rules"
		}},
		{"limits", report.Fail, "served in part, because they are over the limits of one Service: Service shop/wide", func(w *world) {
			w.Daemon.OverLimit = []model.ObjectRef{{Kind: "Service", NamespacedName: model.NamespacedName{Namespace: "shop", Name: "wide"}}}
		}},
		{"configuration", report.Warn, "the last change is refused", func(w *world) { w.ConfigError = "x" }},
		{"connection-retry", report.Warn, "the kernel lacks it", func(w *world) { w.Daemon.Retry = doctor.Ability{Text: "the kernel lacks it", Lacks: true} }},
		{"privilege", report.Fail, "the daemon lacks CAP_NET_ADMIN", func(w *world) { w.Host.NetAdmin = false }},
		{"api-server", report.Fail, "services can't be read from https://192.168.0.1:6443 for 10m (last answer 2s ago): refused", func(w *world) {
			w.Daemon.Cluster.Failing = []informer.Failure{{Resource: "services", Since: now.Add(-10 * time.Minute), Err: errors.New("refused")}}
		}},
		{"api-server", report.Warn, "no answer yet", func(w *world) { w.Daemon.Cluster.Heard = time.Time{} }},
		{"api-server", report.Warn, "last answer 2s ago; services have not been read yet", func(w *world) { w.Daemon.Cluster.Unread = []string{"services"} }},
		{"node", report.Warn, `not known yet: it has not been read whether the cluster has a Node "node-1"`, func(w *world) {
			w.Daemon.NodeUnread = true
		}},
		{"clock", report.Warn, "this node's is 5m behind the API server's", func(w *world) { w.Daemon.Cluster.Skew = 5 * time.Minute }},
		{"node", report.Fail, `the cluster has no Node "node-1"`, func(w *world) { w.Daemon.Node, w.Daemon.Health.NoNode = model.NodeState{}, "node-1" }},
		{"node", report.Fail, `the Node "node-1" is deleted`, func(w *world) { w.Daemon.Node = model.NodeState{} }},
		{"node", report.Warn, `the Node "node-1" has the taint x`, func(w *world) { w.Daemon.Node.Why = "has the taint x" }},
		{"node", report.Fail, "no interface of this machine has an address", func(w *world) { w.Daemon.NodeObject.Addrs = []netip.Addr{netip.MustParseAddr("192.168.0.77")} }},
		{"pod-ranges", report.Fail, "--cluster-cidr 10.9.0.0/16 has none of the pods on this node, such as 10.0.0.2", func(w *world) {
			w.Daemon.Pods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
		}},
		{"pod-ranges", report.Warn, "--cluster-cidr 10.9.0.0/16 does not contain 10.0.0.0/24, the Node's spec.podCIDRs", func(w *world) {
			w.Daemon.Pods.ClusterCIDRs, w.Wants.LocalPods = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}, nil
		}},
		{"sync", report.Fail, "IPv6: the last sync failed; changes wait for 5s: x", func(w *world) {
			w.Daemon.Health.Families[1].LastError, w.Daemon.Health.Families[1].Waiting = "x", now.Add(-5*time.Second)
		}},
		{"table", report.Fail, "in 2 operations, such as: add element", func(w *world) {
			w.Table.Differences = []string{"add element", "add rule"}
		}},
		{"table", report.Warn, "can't be compared: IPv6: x", func(w *world) {
			w.Table.Errs = []error{errors.New("IPv6: x")}
		}},
		{"other-proxies", report.Fail, "kube-proxy came back", func(w *world) { w.OtherProxies = []string{"kube-proxy came back"} }},
		{"other-proxies", report.Warn, "rules that another proxy left: 3", func(w *world) { w.Leftovers = "3" }},
		{"other-proxies", report.Warn, "is unknown: no ipset; no chains", func(w *world) { w.Unexamined = errors.New("no ipset\nno chains") }},
		{"node", report.Fail, "has the taint node.kubernetes.io/network-unavailable: its pods are not ready, or have no network", func(w *world) {
			w.Daemon.NodeObject.Taints = []string{"node.kubernetes.io/network-unavailable"}
		}},
		{"pod-routes", report.Fail, "the node has no route to a pod: 10.0.0.2: network is unreachable", func(w *world) {
			w.Host.NoRoute = []string{"10.0.0.2: network is unreachable"}
		}},
		{"listeners", report.Fail, "IPv4: 2 listeners are missing", func(w *world) { w.Daemon.Listeners = []string{"IPv4: 2 listeners are missing"} }},
		{"ports", report.Warn, "address already in use", func(w *world) { w.Daemon.Ports = []error{errors.New("healthz server: address already in use")} }},
		{"forwarding", report.Fail, "net.ipv4.ip_forward is 0", func(w *world) { w.Host.Sysctls[doctor.IPForward] = "0" }},
		{"forwarding", report.Fail, "net.ipv6.conf.all.forwarding is 0", func(w *world) { w.Host.Sysctls[doctor.IPv6Forward] = "0" }},
		{"ipv6", report.Fail, "net.ipv6.conf.all.disable_ipv6 is 1, and 3 service ports", func(w *world) { w.Host.Sysctls[doctor.IPv6Disabled] = "1" }},
		{"ipv6", report.Fail, "the kernel has IPv6 switched off", func(w *world) { delete(w.Host.Sysctls, doctor.IPv6Disabled) }},
		{"firewall", report.Warn, "table ip filter, chain FORWARD (hook forward, priority 0), which is not vmapd's, may drop connections to Services: " +
			"its policy is drop, and 12 of its rules may drop or reject packets", func(w *world) {
			w.Host.Chains = []doctor.Chain{chain(others.Forward, true, 12)}
		}},
		{"firewall", report.Warn, "(hook input, priority 0), which is not vmapd's, may drop connections to Services: its policy is drop", func(w *world) {
			w.Wants.Backend, w.Host.Chains = "ipvs", []doctor.Chain{chain(others.Input, true, 0)} // IPVS takes packets there
		}},
		{"firewall", report.Warn, "table inet theirs, chain early, rule 3, which is not vmapd's, keeps packets from being tracked (NOTRACK), " +
			"one of 2 such rules at the hook prerouting: a connection", func(w *world) {
			w.Host.Chains = []doctor.Chain{untracking(-300)}
		}},
		{"firewall", report.Warn, "table inet theirs, chain early, rule 3, which is not vmapd's, translates connections to 172.30.0.10, the address of a Service", func(w *world) {
			c, ip := untracking(0), netip.MustParseAddr("172.30.0.10")
			c.Untracks[0].To = ip
			w.Daemon.IsClusterIP = func(a netip.Addr) bool { return a == ip }
			c.Untracks, c.Translates = nil, c.Untracks
			w.Host.Chains = []doctor.Chain{c}
		}},
		{"firewall", report.Warn, "ip6tables-legacy has the tables raw, filter: their rules may drop connections to Services", func(w *world) {
			w.Host.LegacyTables[model.IPv6] = []string{"raw", "filter"}
		}},
		{"firewall", report.Warn, "list chains: x", func(w *world) { w.Host.Unread = []string{"list chains: x"} }},
		{"bridges", report.Fail, "net.bridge.bridge-nf-call-iptables is 0, and pods are ports of the bridge cni0", func(w *world) {
			w.Host.Bridges, w.Host.Sysctls[nodesetup.BridgeCalls[model.IPv4]] = podBridge(), "0"
		}},
		{"bridges", report.Fail, "net.bridge.bridge-nf-call-ip6tables is missing (the module br_netfilter is not loaded)", func(w *world) {
			w.Host.Bridges, w.Wants.PodRanges = podBridge(), append(w.Wants.PodRanges, netip.MustParsePrefix("fd00:10::/56"))
			delete(w.Host.Sysctls, nodesetup.BridgeCalls[model.IPv6])
		}},
		{"conntrack", report.Warn, "950 of at most 1000 entries", func(w *world) { w.Host.Tracked = 950 }},
		{"conntrack", report.Fail, "1000 of at most 1000 entries", func(w *world) { w.Host.Tracked = 1000 }},
		{"sysctls", report.Warn, "nf_conntrack_max should be 131072 (conntrack.maxPerCore) and is 7", func(w *world) {
			w.Host.Unset = []nodesetup.Write{{File: "nf_conntrack_max", Value: "131072", Have: "7", Why: "conntrack.maxPerCore"}}
		}},
	} {
		t.Run(tt.check+"/"+tt.want, func(t *testing.T) {
			w := healthy()
			tt.spoil(w)
			r := w.diagnose()
			bad := report.Bad(r.Lines)
			if len(bad) != 1 || bad[0].Name != tt.check || bad[0].Level != tt.level || !strings.Contains(bad[0].Text, tt.want) || bad[0].Fix == "" {
				t.Errorf("want only %s %s %q with a remedy, got %s", tt.level, tt.check, tt.want, strings.Join(texts(bad), "\n"))
			}
			if want := map[report.Level]int{report.Fail: 3}[tt.level]; r.ExitCode() != want || r.Level != tt.level {
				t.Errorf("exit code %d, want %d; %s", r.ExitCode(), want, r.Level)
			}
		})
	}
}

// Without a daemon, the node is examined by the same checks, and each failure says what to do first.
func TestWithoutADaemon(t *testing.T) {
	none := fmt.Errorf("%w: there is no socket /s", socket.ErrNoDaemon)
	for _, tt := range []struct {
		name string
		f    doctor.Facts
		want []string
	}{
		{"no daemon", doctor.Facts{NoDaemon: none}, []string{"fail daemon: no daemon answers: there is no socket /s -> start it, or"}},
		{
			"another socket",
			doctor.Facts{NoDaemon: none, Other: "a daemon answers at /o: give --socket /o", Leftovers: "its own"},
			[]string{"fail daemon: no daemon answers: there is no socket /s -> a daemon answers at /o: give --socket /o."},
		},
		{
			"another user",
			doctor.Facts{NoDaemon: fmt.Errorf("only root may ask: %w", fs.ErrPermission), Leftovers: "its own"},
			[]string{"fail daemon: only root may ask: permission denied -> run this as root."},
		},
		{"a bad flag", doctor.Facts{NoDaemon: none, ConfigError: "bindAddress: x"}, []string{
			"fail daemon: ", "fail configuration: the daemon would not start with this configuration: bindAddress: x ->",
		}},
		{"no program", doctor.Facts{NoDaemon: none, NoPrograms: []string{"ipset"}, Wants: doctor.Wants{Backend: "ipvs"}}, []string{
			"fail daemon: ", "fail kernel: programs that the backend ipvs runs are not installed: ipset ->",
		}},
		{"another proxy", doctor.Facts{NoDaemon: none, OtherProxies: []string{"a proxy with mode iptables answers"}, Leftovers: "3"}, []string{
			"fail daemon: ", "warn other-proxies: a proxy with mode iptables answers -> end it before", "warn other-proxies: rules that another proxy left: 3 -> without",
		}},
	} {
		tt.f.Host.NetAdmin = true
		var bad []string
		for _, l := range report.Bad(doctor.Diagnose(tt.f).Lines) {
			bad = append(bad, fmt.Sprintf("%s %s: %s -> %s", l.Level, l.Name, l.Text, l.Fix))
		}
		same := func(got, want string) bool { return strings.HasPrefix(got, want) }
		if !slices.EqualFunc(bad, tt.want, same) {
			t.Errorf("%s: want %q, got %q", tt.name, tt.want, bad)
		}
	}
	lines := doctor.Diagnose(doctor.Facts{NoDaemon: none}).Lines
	if !slices.Contains(texts(lines), "warn privilege: this process lacks CAP_NET_ADMIN: the rules of other programs can't be read, and a daemon with the same rights could not start") {
		t.Errorf("got %v", texts(lines))
	}
}

// These are no reason for a warning.
func TestFalseAlarms(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"no IPv6, and no Service that needs it": func(w *world) {
			w.Wants.ServicePorts[model.IPv6] = 0
			delete(w.Host.Sysctls, doctor.IPv6Disabled)
			delete(w.Host.Sysctls, doctor.IPv6Forward)
		},
		"pod ranges of the Node that the network plugin ignores": func(w *world) {
			w.Daemon.NodeObject.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")}
		},
		"no --cluster-cidr":      func(w *world) { w.Daemon.Pods.ClusterCIDRs = nil },
		"files and no cluster":   func(w *world) { w.Daemon.Cluster = nil },
		"a clock 3 s behind":     func(w *world) { w.Daemon.Cluster.Skew = 3 * time.Second },
		"no table was compared":  func(w *world) { w.Table.Not = "x" },
		"an old watch is silent": func(w *world) { w.Daemon.Cluster.Heard = now.Add(-time.Hour) },
		"no connection tracking": func(w *world) { w.Host.TrackedMost = 0 },
		"a bridge past netfilter that is not the pods'": func(w *world) {
			w.Host.Bridges = []doctor.Bridge{{Name: "docker0", Addrs: []netip.Prefix{netip.MustParsePrefix("172.17.0.1/16")}}}
			w.Host.Sysctls[nodesetup.BridgeCalls[model.IPv4]] = "0"
		},
		"pods past netfilter, and all are masqueraded": func(w *world) {
			w.Host.Bridges, w.Host.Sysctls[nodesetup.BridgeCalls[model.IPv4]], w.Wants.MasqueradeAll = podBridge(), "0", true
		},
		"rules of other programs, and a policy for the node": func(w *world) {
			w.Host.Chains = []doctor.Chain{chain(others.Prerouting, false, 3), chain(others.Forward, false, 1), chain(others.Input, true, 9)}
		},
		"userspace forwards no packets": func(w *world) {
			w.Wants.Backend, w.Host.Sysctls[doctor.IPForward] = "userspace", "0"
			w.Host.Unset, w.Table.Differences = []nodesetup.Write{{File: "x"}}, []string{"no listener"}
		},
		"rules of NOTRACK behind connection tracking": func(w *world) { w.Host.Chains = []doctor.Chain{untracking(0)} },
		"IPVS, which needs no tracking":               func(w *world) { w.Wants.Backend, w.Host.Chains = "ipvs", []doctor.Chain{untracking(-300)} },
		"iptables-legacy, which may be vmapd's": func(w *world) {
			w.Wants.Backend, w.Host.LegacyTables[model.IPv4] = "iptables", []string{"filter"}
		},
	} {
		w := healthy()
		change(w)
		if bad := report.Bad(w.diagnose().Lines); len(bad) > 0 {
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
	w := healthy()
	w.Host.Chains = []doctor.Chain{chain(others.Prerouting, false, 1), chain(others.Output, false, 0)}
	var got []string
	for _, l := range w.diagnose().Lines {
		if l.Name == "firewall" {
			got = append(got, l.Text)
		}
	}
	want := []string{"table ip filter, chain PREROUTING (hook prerouting, priority 0), which is not vmapd's, has 1 rule that may drop " +
		"or reject packets, which is usual; only vmapd trace ADDRESS:PORT/PROTO shows whether a connection meets it"}
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
	w := healthy()
	w.Table = doctor.Comparison{Differences: []string{"add element"}, Errs: []error{errors.New("IPv6: x")}}
	if bad := report.Bad(w.diagnose().Lines); len(bad) != 2 || bad[0].Level != report.Fail || bad[1].Level != report.Warn {
		t.Errorf("got %v", texts(bad))
	}
}

// The daemon's own doctor does not praise a kernel for which the daemon fell back to another backend.
func TestTheBackendIsSaidWithItsReason(t *testing.T) {
	w := healthy()
	w.Wants.Backend, w.Daemon.Why = "ipvs", "the kernel lacks nft_hash"
	if lines := texts(w.diagnose().Lines); !slices.Contains(lines, "ok kernel: the daemon uses ipvs: the kernel lacks nft_hash") {
		t.Errorf("got %v", lines)
	}
}

// The same cause for several kinds of objects is one line.
func TestOneCauseIsOneLine(t *testing.T) {
	w := healthy()
	for _, kind := range []string{"services", "nodes"} {
		w.Daemon.Cluster.Failing = append(w.Daemon.Cluster.Failing, informer.Failure{Resource: kind, Since: now.Add(-time.Minute), Err: errors.New("connection refused")})
	}
	bad := report.Bad(w.diagnose().Lines)
	if len(bad) != 1 || !strings.HasPrefix(bad[0].Text, "services, nodes can't be read") {
		t.Errorf("got %v", texts(bad))
	}
}

func texts(lines []report.Line) (list []string) {
	for _, l := range lines {
		list = append(list, fmt.Sprintf("%s %s: %s", l.Level, l.Name, l.Text))
	}
	return list
}

// The page has the output of a node whose FORWARD chain may drop.
func TestTroubleshootingHasATranscript(t *testing.T) {
	w := healthy()
	w.Host.Chains = []doctor.Chain{chain(others.Forward, true, 0)}
	page := testaid.Read(t, "../../docs/troubleshooting.md")
	if want := text(t, w.diagnose()); !strings.Contains(page, "```text\n"+want+"```\n") {
		t.Errorf("the page lacks:\n%s", want)
	}
}

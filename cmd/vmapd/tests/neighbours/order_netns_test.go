package neighbours

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// Beside other programs that translate destinations, vmapd is first for what a Service serves, and last for what it
// refuses.

// dnatPorts are destinations, of which IPv4's and IPv6's lead to the last pod.
type dnatPorts map[model.Family][]netip.AddrPort

// dnat writes a program's rules for them.
type dnat struct {
	name   string
	script func(f model.Family, from netip.AddrPort,
		to netip.Addr) string // the rules of one destination, for both protocols
	load func(t *testing.T, node *lab.Namespace, rules [len(model.Families)]string)
}

// dnatPrograms are other programs at the priorities around ours. A chain goes before another one of the same priority
// if it was registered later.
func dnatPrograms() []dnat {
	var list []dnat
	for _, priority := range []string{"-101", "-100", "-99"} {
		list = append(list, dnat{"nft at " + priority, nftDNAT, func(t *testing.T, node *lab.Namespace, rules [2]string) {
			t.Helper()
			for i, f := range []string{"ip", "ip6"} {
				vmapdtest.Feed(t, node, fmt.Sprintf("table %[1]s other { chain translate { %[2]s }; "+
					"chain in { type nat hook prerouting priority %[3]s; jump translate; }; "+
					"chain out { type nat hook output priority %[3]s; jump translate; }; }\n", f, rules[i], priority), "nft", "-f",
					"-")
			}
		}})
	}
	for _, variant := range []string{"legacy", "nft"} {
		list = append(list, dnat{"iptables-" + variant, iptablesDNAT, func(t *testing.T, node *lab.Namespace,
			rules [2]string,
		) {
			t.Helper()
			for i, program := range []string{"iptables-", "ip6tables-"} {
				vmapdtest.Feed(t, node, "*nat\n:OTHER - [0:0]\n-A PREROUTING -j OTHER\n-A OUTPUT -j OTHER\n"+rules[i]+"COMMIT\n",
					program+variant+"-restore", "--noflush")
			}
		}})
	}
	return list
}

func nftDNAT(f model.Family, from netip.AddrPort, to netip.Addr) string {
	ip := [...]string{"ip", "ip6"}[f]
	return fmt.Sprintf("%s daddr %v meta l4proto { tcp, udp } th dport %d dnat to %v; ", ip, from.Addr(), from.Port(),
		netip.AddrPortFrom(to, 8080))
}

func iptablesDNAT(_ model.Family, from netip.AddrPort, to netip.Addr) (rules string) {
	for _, protocol := range []string{"tcp", "udp"} {
		rules += fmt.Sprintf("-A OTHER -d %v -p %s --dport %d -j DNAT --to-destination %v\n",
			from.Addr(), protocol, from.Port(), netip.AddrPortFrom(to, 8080))
	}
	return rules
}

// setUp makes a program translate destinations to a pod.
func (d dnat) setUp(t *testing.T, node *lab.Namespace, dests dnatPorts, pod int) {
	t.Helper()
	var rules [len(model.Families)]string
	for f, list := range dests {
		for _, from := range list {
			rules[f] += d.script(f, from, modeltest.Pod(f, pod-1))
		}
	}
	d.load(t, node, rules)
}

// neighbour is a world with a backend and with another program, of which one is there first.
type neighbour struct {
	*vmapdtest.Plane
	apply applier
	dests dnatPorts
}

// twoVariants reports whether our rules and the program's are of two variants of iptables. IPVS has those of the
// node's own one.
func twoVariants(t *testing.T, by openPlane, program dnat) bool {
	t.Helper()
	ours := by.name
	if ours == vmapdtest.ByIPVS {
		out, err := exec.CommandContext(t.Context(), "iptables", "--version").Output()
		if err != nil {
			t.Fatal(err)
		}
		ours = map[bool]string{true: "iptables-nft", false: "iptables-legacy"}[strings.Contains(string(out), "nf_tables")]
	}
	return strings.HasPrefix(ours, "iptables") && strings.HasPrefix(program.name, "iptables") && ours != program.name
}

// leaveOut reports whether a backend and a program are no case of a test.
type leaveOut func(t *testing.T, by openPlane, program dnat) bool

// eachOrder runs a test with each backend and each program, in both orders.
func eachOrder(t *testing.T, programs []dnat, test func(t *testing.T, by openPlane, program dnat, first bool),
	leftOut ...leaveOut,
) {
	t.Helper()
	nettest.Need(t)
	for _, by := range planes {
		for _, program := range programs {
			if slices.ContainsFunc(leftOut, func(is leaveOut) bool { return is(t, by, program) }) {
				continue
			}
			for _, first := range []bool{true, false} {
				order := map[bool]string{true: "before", false: "after"}[first]
				t.Run(fmt.Sprintf("%s, %s %s", by.name, program.name, order), func(t *testing.T) {
					t.Parallel()
					if by.name == vmapdtest.ByIPVS {
						vmapdtest.NeedIPVS(t)
					}
					test(t, by, program, first)
				})
			}
		}
	}
}

// newNeighbour applies objects beside a program that translates destinations to the last of three pods.
func newNeighbour(t *testing.T, by openPlane, program dnat, first bool, dests dnatPorts,
	objects ...modeltest.Object,
) *neighbour {
	t.Helper()
	w := labtest.With(t, lab.Config{Pods: 3, Ports: []uint16{8080}})
	vmapdtest.WithoutICMPLimits(t, w.Node)
	builder := modeltest.Builder(vmapdtest.LabConfig(), modeltest.OurNode(),
		modeltest.NewServiceCIDR("kubernetes", lab.ClusterIPRange4, lab.ClusterIPRange6))
	n := &neighbour{&vmapdtest.Plane{World: w, Builder: builder}, by.open(t, w.Node), dests}
	for _, o := range objects {
		o.Set(builder)
	}
	if first {
		program.setUp(t, w.Node, dests, 3)
	}
	if err := n.apply(builder.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if !first {
		program.setUp(t, w.Node, dests, 3)
	}
	return n
}

// origins are where connections come from.
func (n *neighbour) origins() []*lab.Namespace {
	return []*lab.Namespace{n.Client, n.Node, n.Pods()[0].Namespace}
}

// wants checks that a pod answers at each destination, from everywhere, over TCP and UDP.
func (n *neighbour) wants(t *testing.T, dests dnatPorts, pods ...string) {
	t.Helper()
	for _, list := range dests {
		for _, to := range list {
			for _, from := range n.origins() {
				for _, network := range []string{"tcp", "udp"} {
					ctx, cancel := context.WithTimeout(t.Context(), vmapdtest.Patience)
					a, err := from.Ask(ctx, network, to)
					cancel()
					if err != nil || !strings.Contains(strings.Join(pods, " "), a.Pod) {
						t.Errorf("%s from %s to %v: got answer %+v, error %v; want one of %v", network, from.Name(), to, a, err, pods)
					}
				}
			}
		}
	}
}

// fails checks that connections from everywhere fail in this manner.
func (n *neighbour) fails(t *testing.T, to netip.AddrPort, want lab.Failure, within time.Duration) {
	t.Helper()
	for _, from := range n.origins() {
		for _, network := range []string{"tcp", "udp"} {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			a, err := from.Ask(ctx, network, to)
			cancel()
			if err == nil || lab.FailureOf(err) != want {
				t.Errorf("%s from %s to %v: got answer %+v, error %v; want %v", network, from.Name(), to, a, err, want)
			}
		}
	}
}

// addrPorts are destinations of both families.
func addrPorts(list ...string) dnatPorts {
	all := dnatPorts{}
	for _, text := range list {
		to := netip.MustParseAddrPort(text)
		f := model.FamilyOf(to.Addr())
		all[f] = append(all[f], to)
	}
	return all
}

// Of what no Service of ours has, another program serves some: a Service with the label of another proxy, a port of our
// Service's cluster IP, and an address of the ServiceCIDR. What it does not serve is refused or dropped.
func TestOtherProgramsServeWhatNoServiceHas(t *testing.T) {
	t.Parallel()
	theirs := addrPorts("172.30.0.60:80", "[fd00:172:30::60]:80", "172.30.0.41:81", "[fd00:172:30::41]:81",
		"172.30.200.1:80", "[fd00:172:30::c801]:80")
	other := modeltest.NewService("default/other").On("172.30.0.60", "fd00:172:30::60").
		Labeled(model.LabelServiceProxyName, "other").TCP("tcp", 80).UDP("udp", 80)
	eachOrder(t, dnatPrograms(), func(t *testing.T, by openPlane, program dnat, first bool) {
		n := newNeighbour(t, by, program, first, theirs, append(vmapdtest.WebSlices([]int{1, 2}), vmapdtest.Web(), other)...)
		n.wants(t, theirs, "pod-3")
		for _, f := range model.Families {
			n.wants(t, dnatPorts{f: vmapdtest.Frontends(f)}, "pod-1", "pod-2")
		}
		n.fails(t, netip.MustParseAddrPort("172.30.0.41:82"), lab.Refused, vmapdtest.Patience)
		n.fails(t, netip.MustParseAddrPort("[fd00:172:30::41]:82"), lab.Refused, vmapdtest.Patience)
		n.fails(t, netip.MustParseAddrPort("172.30.200.1:81"), lab.Timeout, vmapdtest.Silence)
	})
}

// What a Service serves meets no rule of a program behind it, and none of the program's marks: a host port with the
// number of a node port is not reached. Of chains of one priority, it is the order of registration that decides, so
// iptables is sure to be first only beside rules of its own variant. IPVS receives packets behind all DNAT.
func TestANodePortHasPriorityOverAHostPort(t *testing.T) {
	t.Parallel()
	ports := addrPorts("192.168.0.2:30080", "[fd00:192:168::2]:30080")
	eachOrder(t, dnatPrograms()[1:], func(t *testing.T, by openPlane, program dnat, first bool) {
		n := newNeighbour(t, by, program, first, ports, append(vmapdtest.WebSlices([]int{1, 2}), vmapdtest.Web())...)
		switch {
		case by.name == vmapdtest.ByIPVS:
			n.wants(t, ports, "pod-3")
		case strings.HasPrefix(by.name, "iptables") && by.name != program.name:
			n.wants(t, ports, "pod-1", "pod-2", "pod-3")
		default:
			n.wants(t, ports, "pod-1", "pod-2")
		}
	})
}

// A connection of a pod to a Service is not marked, whichever program wrote its rules first. Marked packets of the
// first pod, whose address belongs to another interface than the node's first one, are lost: there, the VPC takes its
// address for a wrong one.
func TestConnectionsToServicesAreNotMarkedForAnInterface(t *testing.T) {
	t.Parallel()
	var programs []dnat
	add := func(name, variant, rules string, load ...string) {
		programs = append(programs, dnat{name: name, load: func(t *testing.T, node *lab.Namespace, _ [2]string) {
			t.Helper()
			vmapdtest.Feed(t, node, testaid.Read(t, "testdata/vpc-later.rules"), "iptables-"+variant+"-restore", "--noflush")
			vmapdtest.Feed(t, node, testaid.Read(t, rules), load[0], load[1:]...)
			vmapdtest.Feed(t, node, "", "ip", "route", "add", "default", "via", lab.ClientIP4, "dev", lab.UplinkName, "table",
				"100")
			vmapdtest.Feed(t, node, "", "ip", "rule", "add", "priority", "1024", "from", lab.FirstPodIP4, "fwmark",
				"0x80/0x80", "lookup", "100")
		}})
	}
	add("iptables-legacy", "legacy", "testdata/vpc-marks.rules", "iptables-legacy-restore", "--noflush")
	add("iptables-nft", "nft", "testdata/vpc-marks.rules", "iptables-nft-restore", "--noflush")
	add("nft at -90", "nft", "testdata/vpc.nft", "nft", "-f", "-")
	eachOrder(t, programs, func(t *testing.T, by openPlane, program dnat, first bool) {
		n := newNeighbour(t, by, program, first, nil, append(vmapdtest.WebSlices([]int{2, 3}), vmapdtest.Web())...)
		n.wants(t, dnatPorts{model.IPv4: vmapdtest.Frontends(model.IPv4)}, "pod-2", "pod-3")
	}, twoVariants) // of these, the one that was registered later is first, as with kube-proxy
}

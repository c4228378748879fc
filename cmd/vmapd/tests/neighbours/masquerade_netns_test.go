package neighbours

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// masquerading are programs that masquerade packets to pods: flannel those from outside, others all.
func masquerading() (list []dnat) {
	for _, variant := range []string{"legacy", "nft"} {
		for _, verb := range []string{"-A", "-I"} {
			list = append(list, dnat{name: flannel + variant + verb, load: func(t *testing.T, node *lab.Namespace, _ [2]string) {
				t.Helper()
				for program, pods := range map[string]string{"iptables-": lab.PodRange4, "ip6tables-": lab.PodRange6} {
					rule := fmt.Sprintf("*nat\n%s POSTROUTING ! -s %s -d %[2]s -j MASQUERADE\nCOMMIT\n", verb, pods)
					vmapdtest.Feed(t, node, rule, program+variant+"-restore", "--noflush")
				}
			}})
		}
	}
	for _, priority := range []string{"srcnat", "50"} {
		list = append(list, dnat{name: "nft at " + priority, load: func(t *testing.T, node *lab.Namespace, _ [2]string) {
			t.Helper()
			vmapdtest.Feed(t, node, fmt.Sprintf("table inet plugin { chain leave { type nat hook postrouting priority %s; "+
				"ip daddr %s masquerade; ip6 daddr %s masquerade; }; }\n", priority, lab.PodRange4, lab.PodRange6), "nft", "-f", "-")
		}})
	}
	return list
}

const flannel = "flannel by iptables-"

// Where another program masquerades connections to pods, too, before or behind vmapd, each pod sees the source that
// either of the two gives.
func TestOtherProgramsMasquerade(t *testing.T) {
	t.Parallel()
	eachOrder(t, masquerading(), func(t *testing.T, by openPlane, program dnat, first bool) {
		services := append(vmapdtest.WebSlices([]int{1, 2}), vmapdtest.Web())
		n := newNeighbour(t, by, program, first, nil, services...)
		s := n.Builder.Snapshot()
		for _, f := range model.Families {
			node, pod := netip.MustParseAddr([2]string{lab.NodeIP4, lab.NodeIP6}[f]), n.Pods()[0]
			client := netip.MustParseAddr([2]string{lab.ClientIP4, lab.ClientIP6}[f])
			for _, dest := range vmapdtest.Frontends(f) {
				sees := func(from *lab.Namespace, source netip.Addr, device string, masqueraded bool) {
					c := model.Connection{Source: source, Node: device == "", Interface: device, Dest: dest, Protocol: model.TCP}
					n.seesSource(t, from, model.Decide(s, c), masqueraded, node)
				}
				sees(n.Client, client, lab.UplinkName, true)
				sees(n.Node, node, "", true)
				sees(pod.Namespace, modeltest.Pod(f, 0), pod.Link, !strings.HasPrefix(program.name, flannel))
			}
		}
	}, func(_ *testing.T, by openPlane, _ dnat) bool { return by.name == vmapdtest.ByIPVS }) // masquerades more
}

// seesSource connects until both endpoints have answered, and checks the source that they see.
func (n *neighbour) seesSource(t *testing.T, from *lab.Namespace, d model.Decision, masqueraded bool, node netip.Addr) {
	t.Helper()
	const tries = 100
	seen := map[netip.AddrPort]bool{}
	for try := 0; try < tries && len(seen) < len(d.Targets); try++ {
		ctx, cancel := context.WithTimeout(t.Context(), vmapdtest.Patience)
		a, err := from.AskFrom(ctx, d.Source, "tcp", d.Dest)
		cancel()
		i := slices.IndexFunc(d.Targets, func(to model.Target) bool {
			pod, err := n.Pod(a.Pod)
			return err == nil && (pod.IP4 == to.Addr.Addr() || pod.IP6 == to.Addr.Addr())
		})
		if err != nil || i < 0 {
			t.Errorf("from %s to %v: got answer %+v, error %v; want one of %v", from.Name(), d.Dest, a, err, d.Targets)
			return
		}
		want := d.Source
		if masqueraded || d.Targets[i].SNAT.Masquerade() {
			want = node
		}
		if seen[d.Targets[i].Addr] = true; a.Source.Addr() != want {
			t.Errorf("from %s to %v: %s sees the source %v, want %v", from.Name(), d.Dest, a.Pod, a.Source, want)
		}
	}
	if len(seen) < len(d.Targets) || len(seen) == 0 {
		t.Errorf("from %s to %v: only %v answered, want %v", from.Name(), d.Dest, seen, d.Targets)
	}
}

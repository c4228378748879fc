package neighbours

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
)

// firewalls have chains of the table filter that drop TCP to pods, each as one program has them. They are for both
// families.
var firewalls = map[string]string{
	"Calico": `:cali-FORWARD - [0:0]
:cali-to-wl - [0:0]
-I FORWARD 1 -j cali-FORWARD
-A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-FORWARD -j cali-to-wl
-A cali-to-wl -p tcp -m tcp --dport 8080 -j DROP
`,
	"Docker": `:FORWARD DROP [0:0]
:DOCKER-USER - [0:0]
:DOCKER-FORWARD - [0:0]
-I FORWARD 1 -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER-USER -p tcp -m tcp --dport 8080 -j DROP
-A DOCKER-FORWARD -o docker0 -j ACCEPT
`,
	"firewalld": `:FORWARD_IN_ZONES - [0:0]
-I FORWARD 1 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-I FORWARD 2 -j FORWARD_IN_ZONES
-I FORWARD 3 -m conntrack --ctstate INVALID -j DROP
-A FORWARD -j REJECT
-A FORWARD_IN_ZONES -p tcp -m tcp --dport 8080 -j DROP
`,
}

// A connection that a firewall drops stays dropped, whichever program wrote its rules first, after a start of vmapd and
// a restart, which compares all rules. All other connections are served, also where the firewall drops what nobody
// accepts.
func TestWhatAFirewallDropsStaysDropped(t *testing.T) {
	t.Parallel()
	var programs []dnat
	for name, rules := range firewalls {
		for _, variant := range []string{"legacy", "nft"} {
			programs = append(programs, dnat{name: name + " iptables-" + variant, load: func(t *testing.T, node *lab.Namespace, _ [2]string) {
				t.Helper()
				for _, program := range []string{"iptables-", "ip6tables-"} {
					vmapdtest.Feed(t, node, "*filter\n"+rules+"COMMIT\n", program+variant+"-restore", "--noflush")
				}
			}})
		}
	}
	eachOrder(t, programs, func(t *testing.T, by openPlane, program dnat, first bool) {
		n := newNeighbour(t, by, program, first, nil, append(vmapdtest.WebSlices([]int{1, 2}), vmapdtest.Web())...)
		for _, what := range []string{"the start", "a restart"} {
			for _, f := range model.Families {
				for _, to := range vmapdtest.Frontends(f) {
					n.drops(t, what, to)
				}
			}
			n.apply = by.open(t, n.Node)
			if err := n.apply(n.Builder.Snapshot()); err != nil {
				t.Fatal(err)
			}
		}
	}, func(_ *testing.T, by openPlane, program dnat) bool {
		// IPVS sends packets from INPUT to OUTPUT. The nftables backend accepts nothing.
		return !strings.HasPrefix(by.name, "iptables") || !strings.HasSuffix(program.name, by.name)
	})
}

// drops checks that the client gets no answer over TCP, and one over UDP.
func (n *neighbour) drops(t *testing.T, after string, to netip.AddrPort) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), vmapdtest.Patience)
	defer cancel()
	if _, err := n.Client.Ask(ctx, "udp", to); err != nil {
		t.Errorf("after %s, UDP to %v: %v", after, to, err)
	}
	silence, end := context.WithTimeout(t.Context(), vmapdtest.Silence)
	defer end()
	if a, err := n.Client.Ask(silence, "tcp", to); err == nil {
		t.Errorf("after %s, TCP to %v, which the firewall drops: answered by %s", after, to, a.Pod)
	}
}

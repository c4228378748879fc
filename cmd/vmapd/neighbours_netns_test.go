package main

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Session affinity beside others who use NAT, and beside Services of others.

// A foreignNAT is NAT of another program.
type foreignNAT struct {
	name  string
	setUp func(t *testing.T, node *lab.Namespace)
}

// foreignMasquerade has the ways in which network plugins masquerade. Once a chain has set up
// source NAT for a connection, the kernel passes no other chain of type nat.
var foreignMasquerade = []foreignNAT{
	{"iptables-legacy", masqueradeByIPTables("legacy")},
	{"iptables-nft", masqueradeByIPTables("nft")},
	{"nft", func(t *testing.T, node *lab.Namespace) {
		t.Helper()
		feed(t, node, `table inet plugin { chain leave { type nat hook postrouting priority srcnat; masquerade; }; }`, "nft", "-f", "-")
	}},
	{"nft, before srcnat", func(t *testing.T, node *lab.Namespace) {
		t.Helper()
		feed(t, node, `table inet plugin { chain leave { type nat hook postrouting priority 50; masquerade; }; }`, "nft", "-f", "-")
	}},
}

func masqueradeByIPTables(variant string) func(*testing.T, *lab.Namespace) {
	return func(t *testing.T, node *lab.Namespace) {
		t.Helper()
		for _, program := range []string{"iptables-", "ip6tables-"} {
			feed(t, node, "", program+variant, "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")
		}
	}
}

func TestAClientIsRememberedBesideAnotherMasquerade(t *testing.T) {
	t.Parallel()
	for _, foreign := range foreignMasquerade {
		for _, when := range []string{"before ours", "after ours"} {
			t.Run(foreign.name+" "+when, func(t *testing.T) {
				t.Parallel()
				p := newPlane(t, 3, labConfig(), 8080)
				objects := append(webSlices([]int{1, 2, 3}), web().Sticky(60))
				if when == "before ours" {
					foreign.setUp(t, p.Node)
					p.set(t, objects...)
				} else {
					p.set(t, objects...)
					foreign.setUp(t, p.Node)
				}
				client := asker{t, p.Client}
				for _, f := range model.Families {
					source := netip.MustParseAddr([...]string{lab.ClientIP4, lab.ClientIP6}[f])
					to := frontends(f)[3] // the node port
					for _, network := range []string{"tcp", "udp"} {
						const connections = 30
						pods := map[string]int{}
						for range connections {
							pods[client.ask(network, source, to)]++
						}
						if len(pods) != 1 {
							t.Errorf("%v %s: one client was answered by %v", f, network, pods)
						}
						if _, there := clients(t, p.Node)["affinity-default/web/"+network+"/"+network][source]; !there {
							t.Errorf("%v %s: nobody remembers %v", f, network, source)
						}
					}
				}
			})
		}
	}
}

// mustNotBeRemembered checks that nobody is sent to a pod.
func (p *plane) mustNotBeRemembered(t *testing.T, pod int) {
	t.Helper()
	for name, m := range clients(t, p.Node) {
		for client, to := range m {
			if f := model.FamilyOf(client); to == modeltest.Pod(f, pod-1) {
				t.Errorf("%s: client %v is sent to pod %d", name, client, pod)
			}
		}
	}
}

// An address of the node may be an external IP of one Service, with a port whose number is the
// node port of another. Who connects there is a client of the first alone.
func TestAnExternalIPDoesNotTeachTheNodePortOfAnother(t *testing.T) {
	t.Parallel()
	for name, pods := range map[string][]int{"other pods": {3}, "the same pods": {1, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, 3, labConfig(), 8080)
			for _, f := range model.Families {
				tenant := modeltest.NewSlice("default/x-"+f.String(), "x").Typed(f.String()).TCP("tcp", 8080).UDP("udp", 8080)
				for _, n := range pods {
					tenant = tenant.Local(modeltest.Pod(f, n-1).String())
				}
				p.set(t, tenant)
			}
			x := modeltest.NewService("default/x").On("172.30.0.51", "fd00:172:30::51").
				External("192.168.0.2", "fd00:192:168::2").TCP("tcp", 30080).UDP("udp", 30080)
			p.set(t, append(webSlices([]int{1, 2}), x, web().Sticky(60))...)
			client := asker{t, p.Client}
			for _, f := range model.Families {
				to := frontends(f)
				for _, network := range []string{"tcp", "udp"} {
					source := clientAddrs(t, p.World, f, 1)[0]
					client.ask(network, source, to[3])
					if to, there := clients(t, p.Node)["affinity-default/web/"+network+"/"+network][source]; there {
						t.Errorf("%s: the connection of %v to the other Service was remembered: %v", network, source, to)
					}
					if pod := client.ask(network, source, to[0]); pod == "pod-3" {
						t.Errorf("%s: a client of one Service was sent to a pod of the other", network)
					}
				}
			}
		})
	}
}

// The pod of a host port is none of the Service whose node port has the same number. The rule for the host port is
// before ours, where network plugins have none.
func TestAHostPortDoesNotTeachTheNodePort(t *testing.T) {
	t.Parallel()
	p := newPlane(t, 3, labConfig(), 8080)
	p.set(t, append(webSlices([]int{1, 2}), web().Sticky(60))...)
	feed(t, p.Node, `table inet plugin { chain arrive { type nat hook prerouting priority -102;
		meta l4proto { tcp, udp } th dport 30080 dnat ip to 10.0.0.4:8080; meta l4proto { tcp, udp } th dport 30080 dnat ip6 to [fd00:10::4]:8080; }; }`, "nft", "-f", "-")
	client := asker{t, p.Client}
	for _, f := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			source := clientAddrs(t, p.World, f, 1)[0]
			if pod := client.ask(network, source, frontends(f)[3]); pod != "pod-3" {
				t.Fatalf("%s answered at the host port: nothing is tested", pod)
			}
			p.mustNotBeRemembered(t, 3)
			if pod := client.ask(network, source, frontends(f)[0]); pod == "pod-3" {
				t.Errorf("%s: a client of the Service was sent to the pod of a host port", network)
			}
		}
	}
}

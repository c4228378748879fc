package nft

import (
	"fmt"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// FastPath is the name of the flowtable with the Service connections whose packets take the fast
// path: from the ingress of one device to another, past all chains, routing and connection tracking.
const FastPath = "fast-path"

// FastPathAfter is the number of packets, in both directions, after which a connection is taken. Most
// connections are shorter, and for each one that is taken the kernel makes and frees an entry.
const FastPathAfter = 20

const (
	fastPathChain    = "fast-path"
	fastPathServices = "fast-path-services"
)

// Flowtable is the declaration of a flowtable. Its devices are no part of a ruleset: they come and go
// with pods, and whoever knows them puts them into the table.
type Flowtable struct {
	Name string
	Prio int32 // at the hook ingress
}

func (t Flowtable) declaration() []string {
	prio := fmt.Sprint(t.Prio)
	if t.Prio == priorityFilter {
		prio = "filter"
	}
	// Without a counter, the packets would be missing in connection tracking's own counters.
	return []string{"hook ingress priority " + prio, "counter"}
}

// Flowtables returns the flowtables that a table has.
func (o Options) Flowtables() []Flowtable {
	if !o.FastPath {
		return nil
	}
	return []Flowtable{{Name: FastPath, Prio: priorityFilter}}
}

// Flowtables returns the flowtables of the ruleset.
func (r *Ruleset) Flowtables() []Flowtable { return r.Options.Flowtables() }

// fastPathProtocols are those of which the kernel takes connections (nft_flow_offload_eval).
var fastPathProtocols = [...]model.Protocol{model.TCP, model.UDP}

// FastPathChains returns the chains with which a table has the fast path.
func (o Options) FastPathChains() []Chain {
	if !o.FastPath {
		return nil
	}
	return fastPathChains()
}

// fastPathChains put connections onto the fast path behind all rules of others at the hook forward, so
// that a packet which one of these drops does not. The destination that the client asked for tells our
// connections from those that others translate, as in postrouting: a container runtime may translate
// another port of the node to the same pod.
func fastPathChains() []Chain {
	take := AddFlow{Flowtable: FastPath}
	var rules []Rule
	for _, p := range fastPathProtocols {
		rules = append(rules, Rule{MatchProtocol{p}, InSet{Key: origVIPKey, Set: FastPathIPs}, take})
	}
	for _, p := range fastPathProtocols {
		rules = append(rules, Rule{
			MatchProtocol{p}, InSet{Key: origDestKey, Set: NodePortIPs}, InSet{Key: origPortKey, Set: FastPathNodePorts}, take,
		})
	}
	return []Chain{
		{
			Name: fastPathChain, Hook: Forward, Prio: priorityFastPath, Filter: true,
			Rules:   []Rule{{MatchDNAT{}, MatchEstablished{}, MatchPackets{FastPathAfter}, Verdict{Jump, fastPathServices}}},
			Comment: "connections with more than a few packets",
		},
		{Name: fastPathServices, Rules: rules, Comment: "take connections to Services onto the fast path"},
	}
}

// fastPathElements adds the element of a frontend whose connections take the fast path.
func (o Options) fastPathElements(fe model.Frontend, add func(set string, e Element)) {
	if !o.FastPath || fe.Action != model.Forward && !fe.ShortCircuit || fe.VIP.Protocol == model.SCTP {
		return
	}
	s := FrontendsOf(fe.Kind)
	add(s.FastPath, Element{Key: s.Key(fe.VIP)})
}

type (
	// MatchEstablished goes on if packets of the connection have come from both sides.
	MatchEstablished struct{}

	// MatchPackets goes on if the connection has had more packets than this, in both directions. The
	// kernel counts those of connections that begin after it has got such a rule (net.netfilter.nf_conntrack_acct).
	MatchPackets struct{ MoreThan uint64 }

	// AddFlow lets the other packets of the connection take the fast path. This packet goes on.
	AddFlow struct{ Flowtable string }
)

func (MatchEstablished) text(model.Family) string { return "ct state established" }

func (s MatchPackets) text(model.Family) string { return fmt.Sprintf("ct packets > %d", s.MoreThan) }

func (s AddFlow) text(model.Family) string { return "flow add @" + s.Flowtable }

// diffFlowtables adds the operations that lead from some flowtables to others.
func (b *Batch) diffFlowtables(have, want []Flowtable) {
	had, has := map[string]bool{}, map[string]bool{}
	for _, t := range have {
		had[t.Name] = true
	}
	for _, t := range want {
		has[t.Name] = true
		if !had[t.Name] {
			b.AddFlowtables = append(b.AddFlowtables, t)
		}
	}
	for _, t := range have {
		if !has[t.Name] {
			b.DeleteFlowtables = append(b.DeleteFlowtables, t.Name)
		}
	}
}

// text is the flowtable in a ruleset.
func (t Flowtable) text() string {
	return fmt.Sprintf("\n\t# the devices are added as they come\n\tflowtable %s {\n\t\t%s\n\t}\n", t.Name, strings.Join(t.declaration(), "\n\t\t"))
}

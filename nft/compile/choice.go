package compile

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// A choice is a chain that chooses an endpoint. All service ports that choose alike share it.
type choice struct {
	of        *nft.Frontends
	list      model.TrafficPolicy
	algorithm model.Algorithm
	capacity  capacity // may be 0 with inside: others are dropped
	retry     retry
	// inside is the capacity for connections from pods and the node, which are sent to any endpoint, and others to one on
	// this node. If it is 0, all connections are alike.
	inside capacity
}

// newChoice returns the chain for a frontend.
func newChoice(of *nft.Frontends, sp *model.ServicePort, fe model.Frontend) choice {
	c := choice{of: of, list: fe.TrafficPolicy, algorithm: sp.Algorithm, retry: retryOf(sp)}
	n, inside := sp.SlotCount(c.list), 0
	if fe.ShortCircuit {
		inside = sp.SlotCount(model.Cluster)
	}
	if max(n, inside) <= 1 { // all algorithms are the same, and share a chain
		c.algorithm = model.Random
	}
	if c.capacity = capacityFor(n, c.list, c.algorithm); inside > 0 {
		c.inside = capacityFor(inside, model.Cluster, c.algorithm)
	}
	return c
}

// chooses reports whether a frontend has a chain to choose an endpoint. A frontend without
// endpoints has one, too: the chain for up to two rejects if all slots are empty. So the
// verdict stays when the first endpoint comes or the last one leaves.
func chooses(fe model.Frontend) bool {
	return fe.ShortCircuit || fe.Action == model.Forward || fe.Action == model.Reject && fe.TrafficPolicy == model.Cluster
}

// choices returns the chains that one with inside leads to: for all endpoints, and for those on this node.
func (c choice) choices() (all, local choice) {
	sub := func(l model.TrafficPolicy, of capacity) choice {
		if of == (capacity{1, 1}) {
			return choice{of: c.of, list: l, capacity: capacityFor(1, l, model.Random), retry: c.retry}
		}
		return choice{of: c.of, list: l, algorithm: c.algorithm, capacity: of, retry: c.retry}
	}
	return sub(model.Cluster, c.inside), sub(model.Local, c.capacity)
}

func (c choice) name() string {
	name := "endpoints-" + c.capacity.String()
	switch {
	case c.inside.hi > 0:
		name = fmt.Sprintf("local-%v-of-%v", c.capacity, c.inside)
	case c.list == model.Local:
		name = "local-" + name
	}
	if c.of.NodePorts {
		name = "nodeport-" + name
	}
	if c.algorithm != model.Random {
		name += "-" + c.algorithm.String()
	}
	return name + [...]string{retryTCP: "", retryDNS: "-dns", noRetry: "-no-retry"}[c.retry]
}

// chain returns the chain. While the kernel commits a batch, a packet may still follow the old verdict and find the
// last slot already gone: it takes slot 0 then. If all slots are gone, it is dropped, since the client's next packet
// meets the new rules; a reset would be final, and untranslated it would reach a process of the node on that port.
//
// The first rule, for TCP alone, works around nft 1.0.6, which turns the first rule of a file that looks into a map
// with data "typeof tcp dport" into a rule for TCP.
func (c choice) chain(o Options, s *model.Settings) nft.Chain {
	if c.inside.hi > 0 {
		return c.bySource(s)
	}
	key := vipKey
	if c.of.NodePorts {
		key = nodePortKey
	}
	dnat := func(how nft.Field, mod int) nft.Statement {
		slot := nft.Expr{Field: how, Mod: uint32(mod)}
		return nft.DNAT{Key: append(slices.Clone(key), slot), Map: c.of.Endpoints[c.list]}
	}
	how := [...]nft.Field{
		model.Random: nft.RandomSlot, model.Maglev: nft.HashSlot, model.MaglevPort: nft.FlowSlot,
	}[c.algorithm]
	made := nft.Chain{Name: c.name(), Comment: "choose one of " + c.capacity.words()}
	protocols, draws := []model.Protocol{model.TCP}, c.capacity.draws()
	if c.retry == retryDNS { // a rule for UDP, the only protocol here, has the first draw
		protocols, draws = append(protocols, model.UDP), draws[1:]
	}
	for _, p := range protocols {
		if how != nft.RandomSlot && c.retry == retryTCP && len(o.Timeouts) > 0 {
			again := nft.Rule{protocolIs(p), repeated, dnat(nft.RandomSlot, c.capacity.hi)}
			made.Rules = append(made.Rules, o.retrying(c.retry, again))
		}
		made.Rules = append(made.Rules, o.retrying(c.retry, nft.Rule{protocolIs(p), dnat(how, c.capacity.hi)}))
	}
	for _, mod := range draws {
		made.Rules = append(made.Rules, nft.Rule{dnat(how, mod)})
	}
	if c.capacity.lo < c.capacity.hi {
		made.Comment += ", again where the slot is empty"
	}
	if c.algorithm != model.Random {
		made.Comment += ", " + c.algorithm.String()
	}
	if c.list == model.Local {
		made.Comment += ", on this node"
	}
	if c.capacity.lo > 1 {
		made.Rules = append(made.Rules, nft.Rule{dnat(nft.RandomSlot, 1)})
	}
	none := dropPacket
	if c.capacity.lo == 0 {
		none = goTo(rejectChain)
		made.Comment += "; refuse if there is none"
	}
	made.Rules = append(made.Rules, nft.Rule{none})
	made.Comment += [...]string{
		retryTCP: "", retryDNS: "; DNS: another one for a question without an answer",
		noRetry: "; without an answer, the connection waits",
	}[c.retry]
	return made
}

// bySource returns the chain that tells connections from pods and the node from others.
func (c choice) bySource(s *model.Settings) nft.Chain {
	all, local := c.choices()
	others := goTo(local.name())
	if c.capacity.hi == 0 {
		others = dropPacket
	}
	return nft.Chain{
		Name:  c.name(),
		Rules: append(fromInside(s, goTo(all.name())), nft.Rule{others}),
		Comment: fmt.Sprintf("this node and its pods: one of %s; others: one of the %s on this node",
			c.inside.words(), c.capacity.words()),
	}
}

func verdict(of *nft.Frontends, sp *model.ServicePort, fe model.Frontend) nft.Verdict {
	switch {
	case chooses(fe):
		return goTo(newChoice(of, sp, fe).name())
	case fe.Action == model.Drop:
		return dropPacket
	}
	return goTo(rejectChain)
}

// neededChains are the chains and rules that depend on the service ports. Chains that choose are only added: before
// Linux 6.2, a chain can't be deleted in the batch that deletes the last element with it. The next start leaves
// out those that are not needed.
type neededChains struct {
	choosing map[choice]bool
	usage    usage
}

// add adds the chains that a service port needs. It reports whether some of them are new. Other rulesets may share the
// map: it does not change but is copied.
func (c *neededChains) add(sp *model.ServicePort) (grown bool) {
	for _, fe := range sp.Frontends {
		if !chooses(fe) {
			continue
		}
		one := newChoice(nft.FrontendsOf(fe.Kind), sp, fe)
		if c.choosing[one] { // as mostly, without garbage
			continue
		}
		if !grown {
			c.choosing, grown = maps.Clone(c.choosing), true
		}
		c.choosing[one] = true
		if one.inside.hi > 0 {
			all, local := one.choices()
			c.choosing[all] = true
			if local.capacity.hi > 0 {
				c.choosing[local] = true
			}
		}
	}
	return grown
}

// A capacity is the range of numbers of endpoints that a chain can choose from: a Service that grows or shrinks keeps
// its verdict. For a new verdict the kernel would validate all verdicts of the table again (nft_table_validate), and
// for a new chain walk the map of endpoints (nf_tables_bind_set).
type capacity struct{ lo, hi int }

// capacityFor returns the capacity of the chain for n slots of a list: up to the next power of two. Only a random
// choice can be repeated when it finds an empty slot; the other algorithms need the exact number.
func capacityFor(n int, l model.TrafficPolicy, a model.Algorithm) capacity {
	switch {
	case a != model.Random || n == 0 && l == model.Local:
		return capacity{n, n}
	case n <= 2 && l == model.Local:
		return capacity{1, 2}
	case n <= 2:
		return capacity{0, 2}
	}
	return capacity{1<<(bits.Len(uint(n-1))-1) + 1, 1 << bits.Len(uint(n-1))}
}

func (c capacity) String() string {
	if c.lo == c.hi {
		return strconv.Itoa(c.hi)
	}
	return fmt.Sprintf("%d-to-%d", c.lo, c.hi)
}

// words is the capacity in a comment.
func (c capacity) words() string { return strings.ReplaceAll(c.String(), "-", " ") }

// maxDraws bounds the rules of a chain that chooses.
const maxDraws = 8

// draws returns the numbers of slots to draw from: first, and again after an empty slot. With n endpoints each draw
// from n slots or more is fair, and a draw from n always finds an endpoint. If there are too many numbers, the first
// draw is repeated, and no endpoint's share is off by more than a thousandth.
func (c capacity) draws() []int {
	var list []int
	lo := max(c.lo, 1)
	steps := c.hi - lo
	if steps >= maxDraws {
		list = []int{c.hi, c.hi}
		steps = maxDraws - 3
	}
	for i := range steps + 1 {
		list = append(list, c.hi-i*(c.hi-lo)/max(steps, 1))
	}
	return list
}

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
	capacity  capacity
	retry     retry
}

// An externalLocalChain sends connections from pods and the node to any endpoint, and
// others to the endpoints on this node.
type externalLocalChain struct {
	of         *nft.Frontends
	algorithm  model.Algorithm
	local, all capacity // local may be 0: others are dropped
	retry      retry
}

// newChoice returns the chain for a frontend and the endpoints that its traffic policy selects.
func newChoice(of *nft.Frontends, sp *model.ServicePort, fe model.Frontend) choice {
	l := fe.TrafficPolicy
	a := algorithmFor(sp.Count(l), sp.Algorithm)
	return choice{of, l, a, capacityFor(sp.SlotCount(l), l, a), retryOf(sp)}
}

// chooses reports whether a frontend has a chain to choose an endpoint. A frontend without
// endpoints has one, too: the chain for up to two rejects if all slots are empty. So the
// verdict stays when the first endpoint comes or the last one leaves.
func chooses(fe model.Frontend) bool {
	return fe.Action == model.Forward || fe.Action == model.Reject && fe.TrafficPolicy == model.Cluster
}

func newExternalLocalChain(of *nft.Frontends, sp *model.ServicePort, fe model.Frontend) externalLocalChain {
	all, local := sp.SlotCount(model.Cluster), 0
	if fe.Action == model.Forward {
		local = sp.SlotCount(model.Local)
	}
	a := algorithmFor(max(all, local), sp.Algorithm)
	return externalLocalChain{
		of, a, capacityFor(local, model.Local, a), capacityFor(all, model.Cluster, a), retryOf(sp),
	}
}

// choices returns the chains that an externalLocalChain leads to: for all endpoints, and for those on this node.
func (c externalLocalChain) choices() (all, local choice) {
	sub := func(l model.TrafficPolicy, of capacity) choice {
		if of == (capacity{1, 1}) {
			return choice{c.of, l, model.Random, capacityFor(1, l, model.Random), c.retry}
		}
		return choice{c.of, l, c.algorithm, of, c.retry}
	}
	return sub(model.Cluster, c.all), sub(model.Local, c.local)
}

// keyOf returns the expressions that make a frontend's key of a packet.
func keyOf(s *nft.Frontends) nft.Key {
	if s.NodePorts {
		return nodePortKey
	}
	return vipKey
}

// prefix returns the beginning of the names of these frontends' chains.
func prefix(s *nft.Frontends) string {
	if s.NodePorts {
		return "nodeport-"
	}
	return ""
}

func suffix(a model.Algorithm) string {
	if a == model.Random {
		return ""
	}
	return "-" + a.String()
}

func (c choice) name() string {
	local := ""
	if c.list == model.Local {
		local = "local-"
	}
	return prefix(c.of) + local + "endpoints-" + c.capacity.String() + suffix(c.algorithm) + c.retry.suffix()
}

func (c externalLocalChain) name() string {
	return fmt.Sprintf("%slocal-%v-of-%v%s%s", prefix(c.of), c.local, c.all, suffix(c.algorithm), c.retry.suffix())
}

// chain returns the chain. While the kernel commits a batch, a packet may still follow the old verdict and find the
// last slot already gone: it takes slot 0 then. If all slots are gone, it is dropped, since the client's next packet
// meets the new rules; a reset would be final, and untranslated it would reach a process of the node on that port.
//
// The first rule, for TCP alone, works around nft 1.0.6, which turns the first rule of a file that looks into a map
// with data "typeof tcp dport" into a rule for TCP.
func (c choice) chain(o Options, _ *model.Settings) nft.Chain {
	dnat := func(how nft.Field, mod int) nft.Statement {
		slot := nft.Expr{Field: how, Mod: uint32(mod)}
		return nft.DNAT{Key: append(slices.Clone(keyOf(c.of)), slot), Map: c.of.Endpoints[c.list]}
	}
	how := nft.RandomSlot
	switch c.algorithm {
	case model.Random:
	case model.Maglev:
		how = nft.HashSlot
	case model.MaglevPort:
		how = nft.FlowSlot
	}
	made := nft.Chain{
		Name:    c.name(),
		Comment: "choose one of " + c.capacity.words(),
	}
	for _, p := range c.protocols() {
		if how != nft.RandomSlot && c.retry == retryTCP && o.retries(c.retry) {
			again := nft.Rule{protocolIs(p), repeated, dnat(nft.RandomSlot, c.capacity.hi)}
			made.Rules = append(made.Rules, o.retrying(c.retry, again))
		}
		made.Rules = append(made.Rules, o.retrying(c.retry, nft.Rule{protocolIs(p), dnat(how, c.capacity.hi)}))
	}
	draws := c.capacity.draws()
	if c.retry == retryDNS {
		draws = draws[1:] // a rule for UDP, the only protocol here, has the first
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
	none := nft.Verdict{Kind: nft.DropPacket}
	if c.capacity.lo == 0 {
		none = goTo(rejectChain)
		made.Comment += "; refuse if there is none"
	}
	made.Rules = append(made.Rules, nft.Rule{none})
	made.Comment += c.retry.words()
	return made
}

// protocols are those that the first rules are for, one each.
func (c choice) protocols() []model.Protocol {
	if c.retry == retryDNS {
		return []model.Protocol{model.TCP, model.UDP}
	}
	return []model.Protocol{model.TCP}
}

func (c externalLocalChain) chain(_ Options, s *model.Settings) nft.Chain {
	all, local := c.choices()
	others := goTo(local.name())
	if c.local.hi == 0 {
		others = nft.Verdict{Kind: nft.DropPacket}
	}
	return nft.Chain{
		Name:  c.name(),
		Rules: append(fromInside(s, goTo(all.name())), nft.Rule{others}),
		Comment: fmt.Sprintf("this node and its pods: one of %s; others: one of the %s on this node",
			c.all.words(), c.local.words()),
	}
}

// verdict returns the verdict for new connections to a frontend.
func verdict(of *nft.Frontends, sp *model.ServicePort, fe model.Frontend) nft.Verdict {
	switch {
	case fe.ShortCircuit:
		return goTo(newExternalLocalChain(of, sp, fe).name())
	case chooses(fe):
		return goTo(newChoice(of, sp, fe).name())
	case fe.Action == model.Drop:
		return nft.Verdict{Kind: nft.DropPacket}
	}
	return goTo(rejectChain)
}

// choosing is a chain that a choice or an externalLocalChain describes.
type choosing interface {
	name() string
	chain(o Options, s *model.Settings) nft.Chain
}

// neededChains are the chains and rules that depend on the service ports. Chains that choose are only added: before
// Linux 6.2, a chain can't be deleted in the batch that deletes the last element with it. The next start leaves
// out those that are not needed.
type neededChains struct {
	choosing map[choosing]bool
	usage    usage
}

// add adds the chains that a service port needs. It reports whether some of them are new. Other rulesets may share the
// map: it does not change but is copied.
func (c *neededChains) add(sp *model.ServicePort) (grown bool) {
	insert := func(one choosing) {
		switch {
		case c.choosing[one]:
			return
		case !grown:
			c.choosing, grown = maps.Clone(c.choosing), true
		}
		if c.choosing == nil {
			c.choosing = map[choosing]bool{}
		}
		c.choosing[one] = true
	}
	for _, fe := range sp.Frontends {
		of := nft.FrontendsOf(fe.Kind)
		switch {
		case fe.ShortCircuit:
			if one := newExternalLocalChain(of, sp, fe); !c.choosing[one] {
				all, local := one.choices()
				insert(one)
				insert(all)
				if one.local.hi > 0 {
					insert(local)
				}
			}
		case chooses(fe):
			if one := newChoice(of, sp, fe); !c.choosing[one] { // as mostly, without garbage
				insert(one)
			}
		}
	}
	return grown
}

// A capacity is the range of numbers of endpoints that a chain can choose from: a Service that grows or shrinks keeps
// its verdict. For a new verdict the kernel would validate all verdicts of the table again (nft_table_validate), and
// for a new chain walk the map of endpoints (nf_tables_bind_set).
type capacity struct{ lo, hi int }

// algorithmFor returns the algorithm to choose one of n endpoints. With one endpoint all
// algorithms are the same, and share a chain.
func algorithmFor(n int, a model.Algorithm) model.Algorithm {
	if n <= 1 {
		return model.Random
	}
	return a
}

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

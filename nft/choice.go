package nft

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// A choice is a chain that chooses one of n endpoints. All service ports that choose
// alike share it.
type choice struct {
	nodePort  bool
	list      model.List
	algorithm model.Algorithm
	n         int
}

// A circuit is a chain that lets pods and the node choose among all endpoints, and others
// among those on this node.
type circuit struct {
	nodePort   bool
	algorithm  model.Algorithm
	local, all int // local may be 0: others are dropped
}

// newChoice returns the chain for a list of endpoints. One of one is chosen at random,
// too: there need not be two chains that do the same.
func newChoice(m *frontendMaps, sp *model.ServicePort, l model.List) choice {
	c := choice{m.nodePort, l, sp.Algorithm, sp.Count(l)}
	if c.n <= 1 {
		c.algorithm = model.Random
	}
	return c
}

func newCircuit(m *frontendMaps, sp *model.ServicePort, fe model.Frontend) circuit {
	c := circuit{nodePort: m.nodePort, algorithm: sp.Algorithm, all: sp.Count(model.ClusterList)}
	if fe.Action == model.Forward {
		c.local = sp.Count(model.LocalList)
	}
	if c.all <= 1 && c.local <= 1 {
		c.algorithm = model.Random
	}
	return c
}

// choices returns the chains that a circuit goes to: for all endpoints, and for those on
// this node.
func (c circuit) choices() (all, local choice) {
	sub := func(l model.List, n int) choice {
		if n <= 1 {
			return choice{c.nodePort, l, model.Random, n}
		}
		return choice{c.nodePort, l, c.algorithm, n}
	}
	return sub(model.ClusterList, c.all), sub(model.LocalList, c.local)
}

func prefix(nodePort bool) string {
	if nodePort {
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
	if c.list == model.LocalList {
		local = "local-"
	}
	return prefix(c.nodePort) + local + "endpoints-" + strconv.Itoa(c.n) + suffix(c.algorithm)
}

func (c circuit) name() string {
	return fmt.Sprintf("%slocal-%d-of-%d%s", prefix(c.nodePort), c.local, c.all, suffix(c.algorithm))
}

// chain chooses. While a batch lands, a packet may still follow the old verdict and find
// the last slot already gone: it takes slot 0 then, rather than being lost.
//
// The rule for TCP alone does nothing that the next one would not. It stands there for
// nft 1.0.6, which makes the first rule of a file that looks into a map whose data is
// "typeof tcp dport" a rule for TCP only: with it, loading a listing again does not
// take all but one endpoint from UDP.
func (c choice) chain() Chain {
	m := &addrMaps
	if c.nodePort {
		m = &nodePortMaps
	}
	dnat := func(how Field, mod int) Statement {
		return DNAT{append(slices.Clone(m.keyExprs()), Expr{how, uint32(mod)}), m.endpoints[c.list]}
	}
	how := map[model.Algorithm]Field{
		model.Random: RandomSlot, model.RoundRobin: NextSlot, model.SourceHash: HashSlot,
	}[c.algorithm]
	made := Chain{
		Name:    c.name(),
		Rules:   []Rule{{MatchProtocol{model.TCP}, dnat(how, c.n)}, {dnat(how, c.n)}},
		Comment: fmt.Sprintf("choose one of %d", c.n),
	}
	if c.algorithm != model.Random {
		made.Comment += ", " + c.algorithm.String()
	}
	if c.list == model.LocalList {
		made.Comment += ", on this node"
	}
	if c.n > 1 {
		made.Rules = append(made.Rules, Rule{dnat(RandomSlot, 1)})
	}
	return made
}

func (c circuit) chain(s *model.Settings) Chain {
	all, local := c.choices()
	made := Chain{
		Name:    c.name(),
		Rules:   fromInside(s, Verdict{Goto, all.name()}),
		Comment: fmt.Sprintf("this node and its pods: one of %d; others: one of the %d on this node", c.all, c.local),
	}
	if c.local == 0 {
		made.Rules = append(made.Rules, Rule{Verdict{Kind: DropPacket}})
	} else {
		made.Rules = append(made.Rules, Rule{Verdict{Goto, local.name()}})
	}
	return made
}

// verdict says what happens at a frontend.
func verdict(m *frontendMaps, sp *model.ServicePort, fe model.Frontend) Verdict {
	switch {
	case fe.ShortCircuit:
		return Verdict{Goto, newCircuit(m, sp, fe).name()}
	case fe.Action == model.Forward:
		return Verdict{Goto, newChoice(m, sp, fe.List).name()}
	case fe.Action == model.Drop:
		return Verdict{Kind: DropPacket}
	}
	return Verdict{Goto, rejectChain}
}

// chosen are the chains that choose, sorted. They are only added: before Linux 6.2, a
// chain can't be deleted in the batch that takes away its last element. The next start
// leaves out what is not needed.
type chosen struct {
	choices  []choice
	circuits []circuit
}

// add notes what a service port needs. It reports whether that is new.
func (c *chosen) add(sp *model.ServicePort) bool {
	grown := false
	for _, fe := range sp.Frontends {
		m := mapsFor(fe.Kind)
		switch {
		case fe.ShortCircuit:
			grown = c.addCircuit(newCircuit(m, sp, fe)) || grown
		case fe.Action == model.Forward:
			grown = c.addChoice(newChoice(m, sp, fe.List)) || grown
		}
	}
	return grown
}

func (c *chosen) addCircuit(one circuit) bool {
	if !insert(&c.circuits, one, compareCircuits) {
		return false
	}
	all, local := one.choices()
	c.addChoice(all)
	if one.local > 0 {
		c.addChoice(local)
	}
	return true
}

func (c *chosen) addChoice(one choice) bool { return insert(&c.choices, one, compareChoices) }

// insert adds to a sorted list that others may share. It reports whether that was new.
func insert[T any](list *[]T, one T, compare func(a, b T) int) bool {
	i, found := slices.BinarySearchFunc(*list, one, compare)
	if !found {
		*list = slices.Insert(slices.Clone(*list), i, one)
	}
	return !found
}

func compareChoices(a, b choice) int {
	return cmp.Or(compareBools(a.nodePort, b.nodePort), cmp.Compare(a.list, b.list),
		cmp.Compare(a.algorithm, b.algorithm), cmp.Compare(a.n, b.n))
}

func compareCircuits(a, b circuit) int {
	return cmp.Or(compareBools(a.nodePort, b.nodePort), cmp.Compare(a.algorithm, b.algorithm),
		cmp.Compare(a.local, b.local), cmp.Compare(a.all, b.all))
}

func compareBools(a, b bool) int { return strings.Compare(prefix(a), prefix(b)) }

func (c chosen) chains(s *model.Settings) []Chain {
	chains := make([]Chain, 0, len(c.choices)+len(c.circuits))
	for _, one := range c.choices {
		chains = append(chains, one.chain())
	}
	for _, one := range c.circuits {
		chains = append(chains, one.chain(s))
	}
	return chains
}

var (
	choiceName  = regexp.MustCompile(`^(nodeport-)?(local-)?endpoints-([0-9]+)(?:-([a-z-]+))?$`)
	circuitName = regexp.MustCompile(`^(nodeport-)?local-([0-9]+)-of-([0-9]+)(?:-([a-z-]+))?$`)
)

// addName notes what the name of a chain says. It reports whether it is such a name.
func (c *chosen) addName(name string) bool {
	if m := choiceName.FindStringSubmatch(name); m != nil {
		one := choice{nodePort: m[1] != ""}
		if m[2] != "" {
			one.list = model.LocalList
		}
		n, err := strconv.Atoi(m[3])
		algorithm, err2 := model.ParseAlgorithm(m[4])
		if one.n, one.algorithm = n, algorithm; err != nil || err2 != nil || n < 1 || one.name() != name {
			return false
		}
		c.addChoice(one)
		return true
	}
	if m := circuitName.FindStringSubmatch(name); m != nil {
		local, err := strconv.Atoi(m[2])
		all, err2 := strconv.Atoi(m[3])
		algorithm, err3 := model.ParseAlgorithm(m[4])
		one := circuit{m[1] != "", algorithm, local, all}
		if err != nil || err2 != nil || err3 != nil || all < 1 || one.name() != name {
			return false
		}
		c.addCircuit(one)
		return true
	}
	return false
}

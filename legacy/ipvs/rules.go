package ipvs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// Rules are the iptables rules for all that IPVS can't do. They depend on the settings
// alone: everything about single Services is in the ipsets.
type Rules struct {
	Chains []Chain // table by table
}

// Chain is a chain of ours.
type Chain struct {
	Table, Name string
	Rules       []string // without "-A" and the name
}

// Names of our chains.
const (
	prefix           = iptables.IPVSPrefix
	servicesChain    = prefix + "SERVICES"
	outsideChain     = prefix + "OUTSIDE"
	dropChain        = prefix + "DROP"
	unallocatedChain = prefix + "UNALLOCATED"
	filterChain      = prefix + "FILTER"
	rejectChain      = prefix + "REJECT"
	forwardChain     = prefix + "FORWARD"
	acceptChain      = prefix + "ACCEPT"
	servedChain      = prefix + "SERVED"
	postroutingChain = prefix + "POSTROUTING"
	masqueradeChain  = prefix + "MASQ"
)

// Matches that the iptables backend does not need.
const (
	byIPVS  = "-m ipvs --ipvs" // IPVS has sent the packet to a real server
	notSent = "-m ipvs ! --ipvs"
	notByLo = "! -i lo"
)

// compiler makes the rules.
type compiler struct {
	*model.Settings
	family  model.Family
	options Options
}

// compileRules returns the rules for settings.
func compileRules(f model.Family, s *model.Settings, o Options) *Rules {
	r := compiler{s, f, o}
	return &Rules{Chains: []Chain{
		{"mangle", servicesChain, r.services()},
		{"mangle", outsideChain, r.outside()},
		{"mangle", dropChain, r.dropOutside()},
		{"mangle", unallocatedChain, r.unallocated(r.in(Addrs, "dst"))},
		{"filter", filterChain, r.filter()},
		{"filter", unallocatedChain, r.unallocated("")},
		{"filter", rejectChain, iptables.RejectRules(f)},
		{"filter", forwardChain, r.forward()},
		{"filter", acceptChain, []string{iptables.Join(iptables.IsEstablished, iptables.Accept)}},
		{"nat", servedChain, r.served()},
		{"nat", postroutingChain, r.postrouting()},
		{"nat", masqueradeChain, r.masquerade()},
	}}
}

// Jumps returns the rules that lead from built-in chains, which belong to everybody, to ours. A packet that IPVS has
// sent to a real server passes the output hook (again), and the input hook if the real server is on this node. The last
// jump of a chain is its first rule: connections to an address that is about to go are dropped, and not refused.
func Jumps() []iptables.Jump {
	jump := func(table, builtin, chain string, matches ...string) iptables.Jump {
		return iptables.Jump{Table: table, Chain: builtin, Rule: iptables.Join(append(matches, "-j "+chain)...)}
	}
	return []iptables.Jump{
		jump("filter", "INPUT", filterChain, notByLo, iptables.IsNew),
		{Table: "filter", Chain: "FORWARD", Rule: "-j " + acceptChain, Last: true},
		jump("filter", "FORWARD", forwardChain),
		jump("filter", "FORWARD", unallocatedChain, iptables.IsNew),
		jump("filter", "OUTPUT", filterChain, notSent, iptables.IsNew),
		jump("filter", "OUTPUT", unallocatedChain, notSent, iptables.IsNew),
		jump("nat", "PREROUTING", servedChain),
		jump("nat", "OUTPUT", servedChain),
		jump("nat", "POSTROUTING", postroutingChain, byIPVS),
		jump("mangle", "INPUT", servicesChain, notByLo, iptables.IsNew),
		jump("mangle", "OUTPUT", servicesChain, notSent, iptables.IsNew),
		jump("mangle", "OUTPUT", unallocatedChain, notSent, iptables.IsNew),
	}
}

func (r compiler) in(set SetName, fields string) string {
	return "-m set --match-set " + set.In(r.family) + " " + fields
}

func (r compiler) notIn(set SetName, fields string) string {
	return "-m set ! --match-set " + set.In(r.family) + " " + fields
}

func (r compiler) setMark() string {
	return iptables.SetMark(r.options.MasqueradeMark, r.options.MasqueradeMark)
}

// services drops and marks new connections before IPVS gets them: in mangle, because in the output path IPVS comes
// before the table filter. Packets from the network meet it in INPUT, where the DNAT rule of a network plugin's host
// port has translated them.
func (r compiler) services() []string {
	rules := []string{
		iptables.Join(r.in(Restricted, "dst,dst"), r.notIn(Sources, "dst,dst,src"), iptables.Drop),
		iptables.Join(r.in(Discard, "dst,dst"), iptables.Drop),
		iptables.Join(r.in(DiscardOutside, "dst,dst"), "-j "+dropChain),
		iptables.Join(r.in(Masquerade, "dst,dst"), r.setMark()),
		iptables.Join(r.in(MasqueradeNode, "dst,dst"), iptables.FromNode, r.setMark()),
	}
	if r.MasqueradeAll || r.Pods.Known() {
		rules = append(rules, iptables.Join(r.in(MasqueradeOutside, "dst,dst"), "-j "+outsideChain))
	}
	return rules
}

// unallocated drops new connections to addresses of a ServiceCIDR that no Service has. In the table filter, all DNAT
// has been done, so what another program serves there passes. From the node itself IPVS would get packets before that:
// in mangle, it is kept from addresses of ours that are just added or removed.
func (r compiler) unallocated(of string) []string {
	var rules []string
	for _, p := range r.ServiceCIDRs {
		rules = append(rules, iptables.Join(iptables.InRange("-d ", p), of, iptables.NotToNode, iptables.Drop))
	}
	return rules
}

// outside marks clients of cluster IPs for masquerading, unless they are pods.
func (r compiler) outside() []string {
	var rules []string
	if !r.MasqueradeAll {
		rules = r.returnPods()
	}
	return append(rules, r.setMark())
}

// dropOutside drops connections that are neither from a pod nor from the node.
func (r compiler) dropOutside() []string {
	return append(r.returnPods(), iptables.Join(iptables.FromNode, iptables.Return), iptables.Drop)
}

func (r compiler) returnPods() (rules []string) {
	for _, m := range iptables.FromPods(r.Pods) {
		rules = append(rules, iptables.Join(m, iptables.Return))
	}
	return rules
}

// filter refuses connections to ports without endpoints, and to those ports of a Service's address that no Service has.
func (r compiler) filter() []string {
	return []string{
		iptables.Join(r.in(Refuse, "dst,dst"), "-j "+rejectChain),
		iptables.Join(r.in(Addrs, "dst"), r.notIn(Services, "dst,dst"), "-j "+rejectChain),
	}
}

// forward drops INVALID packets (a segment outside the window, say): they would reach the client with the endpoint's
// own address, and the client would reset the connection. What arrives for the node itself may be another program's.
func (r compiler) forward() []string {
	if !r.DropInvalid {
		return nil
	}
	return []string{iptables.Join(iptables.IsInvalid, iptables.Drop)}
}

// served keeps the rules of other programs in the table nat from connections to Services, as kube-proxy does: none
// translates or marks them. Node ports are not among them: what another program does with a port of the node has
// priority.
func (r compiler) served() []string {
	return []string{iptables.Join(r.in(Addrs, "dst"), r.in(Services, "dst,dst"), iptables.Accept)}
}

// postrouting masquerades packets that IPVS has sent to a real server.
func (r compiler) postrouting() []string {
	const masquerade = "-j " + masqueradeChain
	return []string{
		iptables.Join(iptables.Marked(r.options.MasqueradeMark), masquerade),
		iptables.Join(r.in(Addrs, "src"), masquerade),
		iptables.Join(r.in(Hairpin, "src,dst"), masquerade),
	}
}

// masquerade clears the mark first, because a packet that then goes through a tunnel passes here again.
func (r compiler) masquerade() []string {
	return []string{iptables.SetMark(0, r.options.MasqueradeMark), iptables.Masquerade(r.options.RandomFully)}
}

// beginning returns the rules for the time until the device has the addresses. It does not drop connections to
// unallocated addresses yet: another proxy that this one is about to replace may still serve them.
func (c *Rules) beginning() *Rules {
	first := *c
	first.Chains = slices.Clone(c.Chains)
	for i := range first.Chains {
		chain := &first.Chains[i]
		chain.Rules = slices.DeleteFunc(slices.Clone(chain.Rules), func(rule string) bool {
			return strings.Contains(rule, iptables.NotToNode)
		})
	}
	return &first
}

// equal reports whether two are the same text.
func (c *Rules) equal(d *Rules) bool {
	return c == d || c != nil && d != nil && c.String() == d.String()
}

// String returns all rules, for iptables-restore --noflush on a node without any chain of ours.
func (c *Rules) String() string { return c.Over(&iptables.Saved{}) }

// Over returns the input of iptables-restore --noflush that replaces listed rules of ours by these, of the tables that
// differ; "" if none does. It has our chains with all their rules, and the jumps of built-in chains that are missing or
// in another place. Each table comes into force at once, its jumps with its chains.
func (c *Rules) Over(s *iptables.Saved) string {
	var b strings.Builder
	for _, table := range [...]string{"mangle", "filter", "nat"} {
		var declare, rules, remove strings.Builder
		unhook, hook := s.Hook(table, Jumps(), iptables.IsIPVS)
		differs := unhook+hook != ""
		listed := s.Chains(table)
		for _, chain := range c.Chains {
			if chain.Table != table {
				continue
			}
			fmt.Fprintf(&declare, ":%s - [0:0]\n", chain.Name)
			for _, rule := range chain.Rules {
				fmt.Fprintf(&rules, "-A %s %s\n", chain.Name, rule)
			}
			differs = differs || !slices.Contains(listed, chain.Name) || !slices.Equal(s.Rules(table, chain.Name), chain.Rules)
		}
		for _, name := range listed { // another version of us may have left chains
			wanted := func(chain Chain) bool { return chain.Table == table && chain.Name == name }
			if iptables.IsIPVS(name) && !slices.ContainsFunc(c.Chains, wanted) {
				differs = true
				fmt.Fprintf(&declare, ":%s - [0:0]\n", name)
				fmt.Fprintf(&remove, "-X %s\n", name)
			}
		}
		if differs {
			fmt.Fprintf(&b, "*%s\n%s%s%s%s%sCOMMIT\n", table, &declare, unhook, &rules, hook, &remove)
		}
	}
	return b.String()
}

package ipvs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Companion are the iptables rules that do what IPVS can't. They depend on the settings
// alone: whatever concerns Services is in the ipsets.
type Companion struct {
	Family model.Family
	Tables []Table
	// Jumps lead from built-in chains, which belong to everybody, to ours. Whoever runs the
	// programs must see to it that each is there once, before the rules of others.
	Jumps []JumpRule
}

// Table are chains of ours in a table.
type Table struct {
	Name   string
	Chains []Chain
}

// Chain is a chain of ours.
type Chain struct {
	Name  string
	Rules []Rule
}

// JumpRule is a rule in a built-in chain.
type JumpRule struct {
	Table, Chain string
	Rule         Rule
}

// Names of our chains.
const (
	servicesChain    = "VMAPD-IPVS-SERVICES"
	outsideChain     = "VMAPD-IPVS-OUTSIDE"
	insideChain      = "VMAPD-IPVS-INSIDE"
	filterChain      = "VMAPD-IPVS-FILTER"
	rejectChain      = "VMAPD-IPVS-REJECT"
	forwardChain     = "VMAPD-IPVS-FORWARD"
	invalidChain     = "VMAPD-IPVS-INVALID"
	postroutingChain = "VMAPD-IPVS-POSTROUTING"
	masqueradeChain  = "VMAPD-IPVS-MASQ"
)

// IsFirst reports whether a chain of the companion's is among those that judge new
// connections before anything else does, also before another backend that takes over.
func IsFirst(chain string) bool {
	return chain == servicesChain || chain == outsideChain || chain == insideChain
}

const (
	vipFields    = "dst,dst"
	sourceFields = "dst,dst,src"
)

// companion returns the rules for settings.
func companion(f model.Family, s *model.Settings, o Options) *Companion {
	isNew := StateIs{"NEW"}
	// What IPVS has sent to a real server passes the output hook (again), and to one on the
	// node the input hook: its destination was judged when it still was the Service's.
	fromNetwork, notSent := By{Name: "lo", Not: true}, ByIPVS{Not: true}
	return &Companion{
		Family: f,
		Tables: []Table{
			{"mangle", []Chain{
				{servicesChain, servicesRules(s, o)},
				{outsideChain, outsideRules(s, o)},
				{insideChain, insideRules(s)},
			}},
			{"filter", []Chain{
				{filterChain, []Rule{
					{[]Match{InSet{Set: Refuse, Fields: vipFields}}, Jump{rejectChain}},
					{[]Match{
						InSet{Set: Addrs, Fields: "dst"},
						InSet{Set: Services, Fields: vipFields, Not: true},
					}, Jump{rejectChain}},
				}},
				{rejectChain, []Rule{
					// ICMP errors are rate-limited by the kernel (net.ipv4.icmp_ratelimit):
					// with them alone, half of a burst of refused connections would time out.
					{[]Match{IsTCP{}}, Reject{TCPReset: true}},
					{nil, Reject{}},
				}},
				{invalidChain, invalidRules(s)},
				{forwardChain, []Rule{{[]Match{StateIs{"RELATED,ESTABLISHED"}}, Accept{}}}},
			}},
			{"nat", []Chain{
				{postroutingChain, postroutingRules(o)},
				{masqueradeChain, []Rule{
					// Who comes by again, in a tunnel say, must not be masqueraded twice.
					{[]Match{isInside(o)}, SetMark{0, ^uint32(0)}},
					{nil, SetMark{0, o.MasqueradeMark}},
					{nil, Masquerading{o.RandomFully}},
				}},
			}},
		},
		Jumps: []JumpRule{
			{"filter", "INPUT", Rule{[]Match{fromNetwork, isNew}, Jump{filterChain}}},
			{"filter", "INPUT", Rule{[]Match{StateIs{"INVALID"}}, Jump{invalidChain}}},
			{"filter", "FORWARD", Rule{nil, Jump{forwardChain}}},
			{"filter", "FORWARD", Rule{[]Match{StateIs{"INVALID"}}, Jump{invalidChain}}},
			{"filter", "OUTPUT", Rule{[]Match{notSent, isNew}, Jump{filterChain}}},
			{"nat", "POSTROUTING", Rule{[]Match{ByIPVS{}}, Jump{postroutingChain}}},
			{"mangle", "PREROUTING", Rule{[]Match{fromNetwork, isNew}, Jump{servicesChain}}},
			{"mangle", "OUTPUT", Rule{[]Match{notSent, isNew}, Jump{servicesChain}}},
		},
	}
}

// servicesRules judge new connections before IPVS does: in mangle, because in the output
// path IPVS comes before the table filter.
func servicesRules(s *model.Settings, o Options) []Rule {
	rules := []Rule{
		{[]Match{
			InSet{Set: Restricted, Fields: vipFields},
			InSet{Set: Sources, Fields: sourceFields, Not: true},
		}, Drop{}},
		{[]Match{InSet{Set: Masquerade, Fields: vipFields}}, SetMark{o.MasqueradeMark, o.MasqueradeMark}},
	}
	if s.MasqueradeAll || s.Pods.Known() {
		rules = append(rules, Rule{[]Match{InSet{Set: MasqueradeOutside, Fields: vipFields}}, Jump{outsideChain}})
	}
	rules = append(rules,
		Rule{[]Match{InSet{Set: Inside, Fields: vipFields}}, Jump{insideChain}},
		Rule{[]Match{InSet{Set: Discard, Fields: vipFields}, Marked{o.InsideMark, insideMask, true}}, Drop{}},
	)
	for _, p := range s.ServiceCIDRs {
		// An address that has come to the device is some Service's.
		rules = append(rules, Rule{[]Match{To{p}, ToLocal{Not: true}}, Drop{}})
	}
	return rules
}

// beginning returns the companion for the time until the addresses are there: what it would
// drop as nobody's is served by another proxy still, if this one takes over from it.
func (c *Companion) beginning() *Companion {
	first := *c
	first.Tables = slices.Clone(c.Tables)
	for i := range first.Tables {
		t := &first.Tables[i]
		t.Chains = slices.Clone(t.Chains)
		for j := range t.Chains {
			t.Chains[j].Rules = slices.DeleteFunc(slices.Clone(t.Chains[j].Rules), func(r Rule) bool {
				return slices.Contains(r.Matches, Match(ToLocal{Not: true}))
			})
		}
	}
	return &first
}

// outsideRules have cluster IPs' clients masqueraded, unless they are pods.
func outsideRules(s *model.Settings, o Options) []Rule {
	var rules []Rule
	if !s.MasqueradeAll {
		for _, m := range podMatches(s.Pods) {
			rules = append(rules, Rule{[]Match{m}, Return{}})
		}
	}
	return append(rules, Rule{nil, SetMark{o.MasqueradeMark, o.MasqueradeMark}})
}

// insideRules send connections from pods and from the node to the whole cluster's endpoints.
func insideRules(s *model.Settings) []Rule {
	var rules []Rule
	for _, m := range append(podMatches(s.Pods), FromLocal{}) {
		rules = append(rules, Rule{[]Match{m}, MapMark{Inside, vipFields}})
	}
	return rules
}

// invalidRules drop what connection tracking can make nothing of (a segment outside the
// window, say): the reply to a client that was masqueraded would end in the node's own
// TCP, which resets the connection.
func invalidRules(s *model.Settings) []Rule {
	if !s.DropInvalid {
		return nil
	}
	return []Rule{{[]Match{InSet{Set: Endpoints, Fields: "src,src"}}, Drop{}}}
}

func isInside(o Options) Match { return Marked{o.InsideMark, insideMask, false} }

// postroutingRules are for what IPVS has sent to a real server.
func postroutingRules(o Options) []Rule {
	masquerade := Jump{masqueradeChain}
	return []Rule{
		// From the node by an address that no other machine may be able to answer to.
		{[]Match{isInside(o), FromLocal{}}, masquerade},
		{[]Match{Marked{o.MasqueradeMark, o.MasqueradeMark, false}}, masquerade},
		{[]Match{InSet{Set: Addrs, Fields: "src"}}, masquerade},
		{[]Match{InSet{Set: Hairpin, Fields: "src,dst"}}, masquerade},
		{[]Match{isInside(o)}, SetMark{0, ^uint32(0)}},
	}
}

// equal reports whether two companions are the same text.
func (c *Companion) equal(d *Companion) bool {
	return c == d || c != nil && d != nil && c.String() == d.String()
}

// Has reports whether a jump is among the companion's.
func (c *Companion) has(j JumpRule) bool {
	return slices.ContainsFunc(c.Jumps, func(k JumpRule) bool {
		return j.Table == k.Table && j.Chain == k.Chain && j.Rule.Text(c.Family) == k.Rule.Text(c.Family)
	})
}

// String is Text with all jumps: what an empty set of tables needs.
func (c *Companion) String() string { return c.Text(c.Jumps) }

// Text is what iptables-restore --noflush takes: our chains with all their rules and those of
// our jumps that are missing, which --noflush would add again. Each table comes into force
// at once, its jumps with its chains.
func (c *Companion) Text(missing []JumpRule) string {
	var b strings.Builder
	for _, t := range c.Tables {
		fmt.Fprintf(&b, "*%s\n", t.Name)
		for _, chain := range t.Chains {
			fmt.Fprintf(&b, ":%s - [0:0]\n", chain.Name)
		}
		for _, chain := range t.Chains {
			for _, r := range chain.Rules {
				fmt.Fprintf(&b, "-A %s %s\n", chain.Name, r.Text(c.Family))
			}
		}
		for _, j := range missing {
			if j.Table == t.Name && c.has(j) {
				fmt.Fprintf(&b, "-I %s 1 %s\n", j.Chain, j.Rule.Text(c.Family))
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

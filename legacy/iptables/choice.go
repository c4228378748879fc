package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/vmapd/vmapd/model"
)

// A connection chooses among n endpoints by passing at most n rules: the first takes one of
// n, the next one of the n-1 that are left, and so on. Where n is above maxFlat, it first
// chooses a group of endpoints likewise, each with the probability of its size.
//
// An endpoint's group depends on its address alone, so an endpoint that comes or goes changes only its group and the
// groups above. Two digits make 256 groups; with more than 8,000 endpoints, these begin to grow.
const (
	maxFlat   = 32
	maxDigits = 2
)

// choice translates one of the two lists of endpoints of a service port.
type choice struct {
	*port
	list   model.TrafficPolicy
	chains []chain
}

// listChains returns the chains that choose from a list.
func (p *port) listChains(l model.TrafficPolicy) []chain {
	c := &choice{port: p, list: l}
	var all []netip.AddrPort
	for e := range p.In(l) {
		all = append(all, e.Addr)
	}
	first := p.chain(nat, roleChoose[l])
	for _, fe := range p.Frontends {
		if w := pathOf(fe); w.direct() && w.TrafficPolicy == l {
			first.add(toVIP(fe.VIP), markOutside)
		}
	}
	if p.Affinity > 0 && !p.r.options.NoAffinity {
		c.add(&first, roleRecall, "", all)
	}
	c.add(&first, roleChoose, "", all)
	return append(c.chains, first)
}

// add adds the rules for one of the endpoints in the group with these digits. With roleChoose, they choose it; with
// roleRecall, they send a client to the one that it had before, if it is among them.
func (c *choice) add(to *chain, r roles, digits string, endpoints []netip.AddrPort) {
	left := len(endpoints)
	if left <= maxFlat || len(digits) == maxDigits {
		for _, e := range endpoints {
			match := c.one(left) + c.remember(e)
			if r == roleRecall {
				match = c.had(e)
			}
			to.add(match, dnat(e))
			left--
		}
		return
	}
	for i, group := range split(endpoints, len(digits)) {
		if len(group) == 0 {
			continue
		}
		sub := c.group(r, digits, i)
		c.add(&sub, r, digits+digit(i), group)
		if r == roleRecall {
			to.add("", "-j "+sub.name)
		} else {
			to.add(random(len(group), left), "-g "+sub.name)
		}
		c.chains = append(c.chains, sub)
		left -= len(group)
	}
}

// had returns the match of a client that had an endpoint before. Each endpoint has a list of its clients, and one rule
// looks for the client there: "--update" also renews the client's time stamp. There is no --reap, which before Linux
// 5.11 may free the entry that is being updated.
func (c *choice) had(e netip.AddrPort) string {
	return fmt.Sprintf("%s -m recent --update --seconds %d --name %s --rsource",
		protocol(c.Name.Protocol), c.Affinity/time.Second, RecentName(c.Name, e))
}

// group returns the chain of a group.
func (c *choice) group(r roles, digits string, i int) chain {
	sub := c.chain(nat, r[c.list])
	sub.name += "-" + digits + digit(i)
	return sub
}

// one returns the match that chooses one of n endpoints.
func (c *choice) one(n int) string {
	proto := protocol(c.Name.Protocol)
	if n == 1 {
		return proto
	}
	return proto + " " + random(1, n) // also for those that hash: no match hashes a source address
}

// remember returns the match that puts the client on the endpoint's list. It stands behind the
// match that chooses, and is evaluated only if that one holds.
func (c *choice) remember(e netip.AddrPort) string {
	if c.Affinity == 0 || c.r.options.NoAffinity {
		return ""
	}
	return " -m recent --set --name " + RecentName(c.Name, e) + " --rsource"
}

// random matches k of n connections; all of them need no match. The kernel has 31 bits for
// a probability, and this is how iptables-save prints them.
func random(k, n int) string {
	if k == n {
		return ""
	}
	const one = 1 << 31
	share := math.Round(one*float64(k)/float64(n)) / one
	return "-m statistic --mode random --probability " + strconv.FormatFloat(share, 'f', 11, 64)
}

func dnat(e netip.AddrPort) string { return "-j DNAT --to-destination " + e.String() }

func digit(i int) string { return strconv.FormatInt(int64(i), 16) }

// split sorts endpoints into groups by one hexadecimal digit of a hash.
func split(endpoints []netip.AddrPort, at int) [16][]netip.AddrPort {
	var groups [16][]netip.AddrPort
	for _, e := range endpoints {
		i := endpointHash(e) >> (60 - 4*at) & 15
		groups[i] = append(groups[i], e)
	}
	return groups
}

// endpointHash is FNV-1a with another multiplication at the end: consecutive addresses differ
// in their last byte alone, which FNV-1a has hardly spread to the upper bits.
func endpointHash(e netip.AddrPort) uint64 {
	const offset, prime, golden = 14695981039346656037, 1099511628211, 0x9e3779b97f4a7c15
	h := uint64(offset)
	for _, b := range e.Addr().As16() {
		h = (h ^ uint64(b)) * prime
	}
	h = (h ^ uint64(e.Port())) * prime
	return (h ^ h>>32) * golden
}

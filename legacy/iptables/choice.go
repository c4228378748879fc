package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/vmapd/vmapd/model"
)

// listChain returns the chain that chooses from a list of endpoints. A connection chooses among n endpoints by passing
// at most n rules: the first takes one of n, the next one of the n-1 that are left, and so on.
func (p *port) listChain(l model.TrafficPolicy) chain {
	c := p.chain(nat, p.name(roleChoose[l]))
	for _, fe := range p.Frontends {
		if w := pathOf(fe); w.direct() && w.TrafficPolicy == l {
			c.add(toVIP(fe.VIP), markOutside)
		}
	}
	sticky := p.Affinity > 0 && !p.r.options.NoAffinity
	left := 0
	for e := range p.In(l) {
		left++
		if sticky {
			c.add(p.had(e.Addr), dnat(e.Addr))
		}
	}
	for e := range p.In(l) {
		match := p.one(left)
		left--
		if sticky { // evaluated only if the match that chooses holds
			match += " -m recent --set --name " + recentName(p.Name, e.Addr) + " --rsource"
		}
		c.add(match, dnat(e.Addr))
	}
	return c
}

// had returns the match of a client that had an endpoint before. Each endpoint has a list of its clients, and one rule
// looks for the client there: "--update" also renews the client's time stamp. There is no --reap, which before Linux
// 5.11 may free the entry that is being updated.
func (p *port) had(e netip.AddrPort) string {
	return fmt.Sprintf("%s -m recent --update --seconds %d --name %s --rsource",
		protocol(p.Name.Protocol), p.Affinity/time.Second, recentName(p.Name, e))
}

// one returns the match that chooses one of n endpoints; the last one needs no choice. The kernel has 31 bits for a
// probability, and this is how iptables-save prints them.
func (p *port) one(n int) string {
	proto := protocol(p.Name.Protocol)
	if n == 1 {
		return proto
	}
	const one = 1 << 31
	share := math.Round(one/float64(n)) / one
	// It is also for those that hash: no match hashes a source address.
	return proto + " -m statistic --mode random --probability " + strconv.FormatFloat(share, 'f', 11, 64)
}

func dnat(e netip.AddrPort) string { return "-j DNAT --to-destination " + e.String() }

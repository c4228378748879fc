package iptables

import (
	"bytes"
	"net/netip"
	"strconv"

	"github.com/vmapd/vmapd/model"
)

// table is one of the two tables that we have chains in.
type table uint8

// The tables, in the order in which a batch writes them: each comes into force for itself.
// What a Service loses is refused before it is no longer translated.
const (
	filter table = iota
	nat
	tables
)

func (t table) String() string { return [...]string{"filter", "nat"}[t] }

// chain is a chain as iptables-restore takes it.
type chain struct {
	table   table
	name    string
	text    []byte // its rules, a line each
	comment string // goes to the first rule
}

// add appends a rule. match may be empty.
func (c *chain) add(match, target string) {
	c.text = append(c.text, "-A "...)
	c.text = append(c.text, c.name...)
	for _, part := range [...]string{match, c.comment, target} {
		if part != "" {
			c.text = append(c.text, ' ')
			c.text = append(c.text, part...)
		}
	}
	c.text = append(c.text, '\n')
	c.comment = ""
}

// rules returns how many there are.
func (c *chain) rules() int { return bytes.Count(c.text, []byte("\n")) }

// host is an address as the programs print it.
func host(a netip.Addr) string { return a.String() + "/" + strconv.Itoa(a.BitLen()) }

// from matches sources in a range.
func from(p netip.Prefix) string {
	if p.Bits() == 0 {
		return ""
	}
	return "-s " + p.String()
}

func protocol(p model.Protocol) string { return "-p " + p.String() }

// toPort matches one destination port.
func toPort(p model.Protocol, port uint16) string {
	name := p.String()
	return "-p " + name + " -m " + name + " --dport " + strconv.Itoa(int(port))
}

// toVIP matches what goes to a frontend. That a node port's address is one of the node's is
// known where this is asked.
func toVIP(v model.VIP) string {
	if v.Addr.IsUnspecified() {
		return toPort(v.Protocol, v.Port)
	}
	return "-d " + host(v.Addr) + " " + toPort(v.Protocol, v.Port)
}

const (
	fromNode    = "-m addrtype --src-type LOCAL"
	isInvalid   = "-m conntrack --ctstate INVALID"
	isDNATed    = "-m conntrack --ctstate DNAT"
	returnNow   = "-j RETURN"
	acceptNow   = "-j ACCEPT"
	dropNow     = "-j DROP"
	gotoReject  = "-g " + rejectChain
	markOutside = "-j " + outsideChain
)

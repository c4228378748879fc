package iptables

import "bytes"

// table is one of the two tables that we have chains in.
type table uint8

// The tables, in the order in which a batch writes them. Each comes into force for itself, and
// connections to an address that a Service loses are refused before they lose their DNAT.
const (
	filter table = iota
	nat
	tables
)

func (t table) String() string { return [...]string{"filter", "nat"}[t] }

// chain is a chain as text for iptables-restore.
type chain struct {
	table   table
	name    string
	text    []byte // its rules, a line each
	comment string // for the first rule
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

// rules returns the number of rules.
func (c *chain) rules() int { return bytes.Count(c.text, []byte("\n")) }

package iptables

import "bytes"

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

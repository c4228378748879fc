package iptables

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// A Batch turns one ruleset into another. It is text for iptables-restore --noflush or ip6tables-restore --noflush,
// which put each table into force as a whole or not at all. A chain that differs is declared, which empties it, and
// written anew. One that is no longer wanted is emptied, and deleted at the end, when nothing leads to it any more.
type Batch struct {
	tables [tables]changes
	jumps  bool
}

type changes struct {
	set    []chain
	delete []string
	growth int // change of the number of rules, without those that set writes
}

// Size is the amount that a batch writes.
type Size struct{ Chains, Rules, Deleted int }

// Rules counts our rules in a table: those that a batch writes, and the growth of their number since the ruleset that
// [Diff] compared with. In a batch of [Ruleset.Repair], or from nothing, the growth is the number of all our rules.
type Rules struct{ Written, Growth int }

func (b *Batch) set(c chain)    { b.tables[c.table].set = append(b.tables[c.table].set, c) }
func (b *Batch) delete(c chain) { b.tables[c.table].delete = append(b.tables[c.table].delete, c.name) }

func (b *Batch) sort() {
	for i := range b.tables {
		slices.SortFunc(b.tables[i].set, func(a, b chain) int { return cmp.Compare(a.name, b.name) })
		slices.Sort(b.tables[i].delete)
	}
}

// Size counts the chains and rules that the batch writes, and the chains that it deletes.
func (b *Batch) Size() Size {
	var s Size
	for _, t := range b.tables {
		s.Chains += len(t.set)
		s.Deleted += len(t.delete)
		for _, c := range t.set {
			s.Rules += c.rules()
		}
	}
	return s
}

// Chains returns the chains that the batch writes or deletes, each behind its table; with a service port, those alone
// that its connections meet.
func (b *Batch) Chains(of *model.ServicePort) (list []string) {
	for t := range tables {
		for _, c := range b.tables[t].set {
			if of == nil || isOf(c.name, of.Name) {
				list = append(list, fmt.Sprintf("chain %s of table %v is missing or different", c.name, t))
			}
		}
		for _, name := range b.tables[t].delete {
			if of == nil {
				list = append(list, fmt.Sprintf("chain %s of table %v is too many", name, t))
			}
		}
	}
	return list
}

// Rules returns the counts of rules by table.
func (b *Batch) Rules() map[string]Rules {
	counts := map[string]Rules{}
	for t := range tables {
		var r Rules
		for _, c := range b.tables[t].set {
			r.Written += c.rules()
		}
		r.Growth = r.Written + b.tables[t].growth
		counts[t.String()] = r
	}
	return counts
}

// Text returns the batch as text.
func (b *Batch) Text() string {
	var w strings.Builder
	for t := range tables {
		has := b.tables[t]
		if len(has.set) == 0 && len(has.delete) == 0 {
			continue
		}
		fmt.Fprintf(&w, "*%v\n", t)
		for _, c := range has.set {
			fmt.Fprintf(&w, ":%s - [0:0]\n", c.name)
		}
		for _, name := range has.delete {
			fmt.Fprintf(&w, ":%s - [0:0]\n", name)
		}
		for _, j := range Jumps() {
			if b.jumps && j.Table == t.String() {
				fmt.Fprint(&w, j)
			}
		}
		for _, c := range has.set {
			w.Write(c.text)
		}
		for _, name := range has.delete {
			fmt.Fprintf(&w, "-X %s\n", name)
		}
		fmt.Fprintln(&w, "COMMIT")
	}
	return w.String()
}

// String returns all chains, and the jumps by which packets come to them, for iptables-restore --noflush on a node
// without any chain of ours.
func (r *Ruleset) String() string {
	b := Diff(nil, r)
	b.jumps = true
	return b.Text()
}

// IsOurs reports whether a chain belongs to the iptables backend. The chains of the IPVS
// backend have names that begin alike, but are not included.
func IsOurs(chain string) bool { return strings.HasPrefix(chain, Prefix) && !IsIPVS(chain) }

// IsIPVS reports whether a chain belongs to the IPVS backend.
func IsIPVS(chain string) bool { return strings.HasPrefix(chain, IPVSPrefix) }

// failedLine finds the number of the refused line in an error message of the programs.
var failedLine = regexp.MustCompile(`line:? (\d+)`)

// Explain adds the refused line of the input to an error message of iptables-restore.
func Explain(said, input string) string {
	m := failedLine.FindStringSubmatch(said)
	if m == nil {
		return said
	}
	n, _ := strconv.Atoi(m[1]) // a number that is too large finds no line
	for line := range strings.Lines(input) {
		if n--; n == 0 {
			return said + ": " + strings.TrimSpace(line)
		}
	}
	return said
}

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

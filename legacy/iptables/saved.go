package iptables

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strconv"
	"strings"
)

// Saved is what iptables-save or ip6tables-save lists, of all tables and of everybody.
type Saved struct {
	rules   map[tableChain][]byte // a line each, as listed, without counters
	order   []tableChain
	invalid uint64
}

type tableChain struct{ table, chain string }

// ParseSaved reads what the program prints, with counters (option -c) or without.
func ParseSaved(r io.Reader) (*Saved, error) {
	s := &Saved{rules: map[tableChain][]byte{}}
	table := ""
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		packets, line := cutCounters(strings.TrimSpace(in.Text()))
		switch {
		case line == "", line[0] == '#', line == "COMMIT":
		case line[0] == '*':
			table = line[1:]
		case line[0] == ':':
			name, _, _ := strings.Cut(line[1:], " ")
			s.add(tableChain{table, name}, nil)
		case strings.HasPrefix(line, "-A "):
			name, _, _ := strings.Cut(line[3:], " ")
			s.add(tableChain{table, name}, []byte(line+"\n"))
			if table == filter.String() && line == "-A "+forwardChain+" "+IsInvalid+" "+Drop {
				s.invalid, _ = strconv.ParseUint(packets, 10, 64) // 0 without counters
			}
		default:
			return nil, fmt.Errorf("unknown line %q", line)
		}
	}
	return s, in.Err()
}

// cutCounters takes "[packets:bytes] " from before a rule.
func cutCounters(line string) (packets, rule string) {
	if !strings.HasPrefix(line, "[") {
		return "", line
	}
	counters, rule, _ := strings.Cut(line[1:], "] ")
	packets, _, _ = strings.Cut(counters, ":")
	return packets, rule
}

// Invalid returns how many packets our rule for those that connection tracking calls invalid
// has dropped since it was written, if the program listed counters.
func (s *Saved) Invalid() uint64 { return s.invalid }

func (s *Saved) add(at tableChain, rule []byte) {
	if _, ok := s.rules[at]; !ok {
		s.order = append(s.order, at)
	}
	s.rules[at] = append(s.rules[at], rule...)
}

// recentMask is what the programs print of an xt_recent match, and we leave out.
var recentMask = regexp.MustCompile(` --mask [0-9a-f.:]+ --rsource`)

// normal makes rules that are listed and the same rules as we write them alike: the programs
// print quotes only where they are needed.
func normal(rule []byte) []byte {
	if bytes.Contains(rule, []byte("--mask")) {
		rule = recentMask.ReplaceAll(rule, []byte(" --rsource"))
	}
	return bytes.ReplaceAll(rule, []byte{'"'}, nil)
}

// Repair returns what makes r of what is there: the chains of ours that differ are written,
// those that r has not are deleted.
func (r *Ruleset) Repair(s *Saved) *Batch {
	b := &Batch{Family: r.Family}
	wanted := map[tableChain]bool{}
	for c := range r.chains() {
		at := tableChain{c.table.String(), c.name}
		wanted[at] = true
		have, ok := s.rules[at]
		if !ok || !bytes.Equal(normal(have), normal(c.text)) {
			b.set(c)
		} else {
			b.tables[c.table].growth += c.rules()
		}
	}
	for t := range tables {
		for name := range s.Chains(t.String()) {
			if IsOurs(name) && !wanted[tableChain{t.String(), name}] {
				b.delete(chain{table: t, name: name})
			}
		}
	}
	b.sort()
	return b
}

// Chains yields the names of a table's chains, in the order in which they are listed.
func (s *Saved) Chains(table string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, at := range s.order {
			if at.table == table && !yield(at.chain) {
				return
			}
		}
	}
}

// Rules returns the rules of a chain, without "-A" and its name.
func (s *Saved) Rules(table, chain string) []string {
	var rules []string
	for line := range bytes.Lines(normal(s.rules[tableChain{table, chain}])) {
		_, rule, _ := strings.Cut(string(line[len("-A "):len(line)-1]), " ")
		rules = append(rules, rule)
	}
	return rules
}

// Count returns how often a jump is there.
func (s *Saved) Count(j Jump) int {
	n := 0
	for line := range bytes.Lines(s.rules[tableChain{j.Table, j.Chain}]) {
		if bytes.Equal(normal(line), j.listed()) {
			n++
		}
	}
	return n
}

// First reports whether a jump is there once, before all other rules of its chain.
func (s *Saved) First(j Jump) bool {
	return s.Count(j) == 1 && bytes.HasPrefix(normal(s.rules[tableChain{j.Table, j.Chain}]), j.listed())
}

// listed is how the programs list a jump.
func (j Jump) listed() []byte {
	return []byte("-A " + j.Chain + " " + strings.Join(j.Args, " ") + "\n")
}

// RemoveText is what iptables-restore --noflush needs in order to delete the chains of
// the given owner, and the rules of other chains that lead there. It is empty if there are
// none.
func (s *Saved) RemoveText(theirs func(chain string) bool) string {
	var all strings.Builder
	seen := map[string]bool{}
	for _, at := range s.order {
		if !seen[at.table] {
			seen[at.table] = true
			all.WriteString(s.removeTable(at.table, theirs))
		}
	}
	return all.String()
}

func (s *Saved) removeTable(table string, theirs func(chain string) bool) string {
	var declare, unhook, remove strings.Builder
	for _, at := range s.order {
		switch {
		case at.table != table:
		case theirs(at.chain):
			fmt.Fprintf(&declare, ":%s - [0:0]\n", at.chain)
			fmt.Fprintf(&remove, "-X %s\n", at.chain)
		default:
			for line := range strings.Lines(string(s.rules[at])) {
				if LeadsTo(line, theirs) {
					unhook.WriteString("-D" + strings.TrimPrefix(line, "-A"))
				}
			}
		}
	}
	if declare.Len() == 0 && unhook.Len() == 0 {
		return ""
	}
	return "*" + table + "\n" + declare.String() + unhook.String() + remove.String() + "COMMIT\n"
}

// LeadsTo reports whether a rule jumps or goes to one of the given owner's chains.
func LeadsTo(rule string, theirs func(chain string) bool) bool {
	words := strings.Fields(rule)
	for i, w := range words {
		if i > 0 && (words[i-1] == "-j" || words[i-1] == "-g") && theirs(w) {
			return true
		}
	}
	return false
}

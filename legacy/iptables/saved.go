package iptables

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Saved is the output of iptables-save or ip6tables-save: all tables, with everybody's rules.
type Saved struct {
	// Invalid is how many packets our rule for those that connection tracking calls invalid has dropped since it was
	// written, if the program listed counters.
	Invalid uint64

	tables []string
	rules  map[tableChain][]byte // a line each, as listed, without counters
	order  []tableChain
}

type tableChain struct{ table, chain string }

// ParseSaved reads the output of the program, with counters (option -c) or without.
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
			s.tables = append(s.tables, table)
		case line[0] == ':':
			name, _, _ := strings.Cut(line[1:], " ")
			s.add(tableChain{table, name}, nil)
		case strings.HasPrefix(line, "-A "):
			name, _, _ := strings.Cut(line[3:], " ")
			s.add(tableChain{table, name}, []byte(line+"\n"))
			if table == filter.String() && line == "-A "+forwardChain+" "+IsInvalid+" "+Drop {
				s.Invalid, _ = strconv.ParseUint(packets, 10, 64) // 0 without counters
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

func (s *Saved) add(at tableChain, rule []byte) {
	if _, ok := s.rules[at]; !ok {
		s.order = append(s.order, at)
	}
	s.rules[at] = append(s.rules[at], rule...)
}

// recentMask finds the option that the programs add to an xt_recent match.
var recentMask = regexp.MustCompile(` --mask [0-9a-f.:]+ --rsource`)

// normal gives rules a form that does not depend on whether we wrote them or a program listed
// them: the programs print quotes only where they are needed.
func normal(rule string) string {
	if strings.Contains(rule, "--mask") {
		rule = recentMask.ReplaceAllString(rule, " --rsource")
	}
	return strings.ReplaceAll(rule, `"`, "")
}

// Repair returns the batch from the listed rules to r: it writes our chains that differ, and
// deletes those that are not in r.
func (r *Ruleset) Repair(s *Saved) *Batch {
	b := &Batch{}
	wanted := map[tableChain]bool{}
	r.each(func(c chain) {
		at := tableChain{c.table.String(), c.name}
		wanted[at] = true
		have, ok := s.rules[at]
		if !ok || normal(string(have)) != normal(string(c.text)) {
			b.set(c)
		} else {
			b.tables[c.table].growth += c.rules()
		}
	})
	for t := range tables {
		for _, name := range s.Chains(t.String()) {
			if IsOurs(name) && !wanted[tableChain{t.String(), name}] {
				b.delete(chain{table: t, name: name})
			}
		}
	}
	b.sort()
	return b
}

// Chains returns the names of a table's chains, in the order in which they are listed; "" is all tables.
func (s *Saved) Chains(table string) (chains []string) {
	for _, at := range s.order {
		if table == "" || table == at.table {
			chains = append(chains, at.chain)
		}
	}
	return chains
}

// Rules returns the rules of a chain, without "-A" and its name.
func (s *Saved) Rules(table, chain string) []string {
	var rules []string
	for line := range strings.Lines(string(s.rules[tableChain{table, chain}])) {
		rules = append(rules, ruleOf(line))
	}
	return rules
}

// ruleOf returns the rule of a line without "-A" and the chain's name.
func ruleOf(line string) string {
	_, rule, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "-A "), " ")
	return normal(rule)
}

func deletion(line string) string { return "-D" + strings.TrimPrefix(line, "-A") }

// HookText returns the input of iptables-restore --noflush that puts our jumps in their places; "" if they are there.
func (s *Saved) HookText() string {
	var b strings.Builder
	for _, t := range [...]table{nat, filter} { // source NAT comes into force before what refuses
		if del, insert := s.Hook(t.String(), Jumps(), IsOurs); del+insert != "" {
			fmt.Fprintf(&b, "*%v\n%s%sCOMMIT\n", t, del, insert)
		}
	}
	return b.String()
}

// Hook compares the jumps of one table with the listing: del deletes what else leads to the given owner's chains, and
// insert adds what is missing. Both are lines for iptables-restore, with which a table changes at once.
func (s *Saved) Hook(table string, jumps []Jump, ours func(chain string) bool) (del, insert string) {
	chains := s.Chains(table)
	for _, j := range jumps {
		if j.Table == table && !slices.Contains(chains, j.Chain) {
			chains = append(chains, j.Chain)
		}
	}
	for _, chain := range chains {
		if ours(chain) {
			continue
		}
		want := slices.DeleteFunc(slices.Clone(jumps), func(j Jump) bool { return j.Table != table || j.Chain != chain })
		hook := s.hookFirst
		if table == filter.String() {
			hook = s.hookAnywhere
		}
		d, i := hook(tableChain{table, chain}, want, ours)
		del, insert = del+d, insert+i
	}
	return del, insert
}

// hookFirst is Hook for a chain in which jumps are the first rules.
func (s *Saved) hookFirst(at tableChain, want []Jump, ours func(chain string) bool) (del, insert string) {
	all, rules := s.unhook(at, ours), s.Rules(at.table, at.chain)
	good := len(all) == len(want)
	for i, j := range want {
		good = good && rules[len(want)-1-i] == normal(j.Rule)
		insert += j.String()
	}
	if good {
		return "", ""
	}
	return strings.Join(all, ""), insert
}

// unconditional finds a rule that has the last word, as the policy has without it.
var unconditional = regexp.MustCompile(`^-j (DROP|REJECT)`)

// hookAnywhere is Hook for a chain in which jumps stay where they are: moved before another program's rule, a jump
// would accept what that one drops.
func (s *Saved) hookAnywhere(at tableChain, want []Jump, ours func(chain string) bool) (del, insert string) {
	place, end := 1, false
	for line := range strings.Lines(string(s.rules[at])) {
		rule := ruleOf(line)
		end = end || unconditional.MatchString(rule)
		i := slices.IndexFunc(want, func(j Jump) bool { return normal(j.Rule) == rule })
		switch {
		case i >= 0:
			want = slices.Delete(want, i, i+1)
		case LeadsTo(line, ours):
			del += deletion(line)
			continue
		}
		if !end {
			place++
		}
	}
	for _, j := range want { // the last ones come first, and move behind those that go to the first place
		if j.Last {
			insert += j.at(place)
		} else {
			insert += j.String()
		}
	}
	return del, insert
}

// unhook returns what deletes the rules of a chain that lead to the given owner's chains.
func (s *Saved) unhook(at tableChain, theirs func(chain string) bool) []string {
	var lines []string
	for line := range strings.Lines(string(s.rules[at])) {
		if LeadsTo(line, theirs) {
			lines = append(lines, deletion(line))
		}
	}
	return lines
}

// RemoveText returns the input of iptables-restore --noflush that deletes the chains of the
// given owner, and the rules of other chains that lead there; "" if there are none.
func (s *Saved) RemoveText(theirs func(chain string) bool) string {
	var all strings.Builder
	for _, table := range s.tables {
		var declare, unhook, remove strings.Builder
		for _, at := range s.order {
			switch {
			case at.table != table:
			case theirs(at.chain):
				fmt.Fprintf(&declare, ":%s - [0:0]\n", at.chain)
				fmt.Fprintf(&remove, "-X %s\n", at.chain)
			default:
				unhook.WriteString(strings.Join(s.unhook(at, theirs), ""))
			}
		}
		if declare.Len()+unhook.Len() > 0 {
			fmt.Fprintf(&all, "*%s\n%s%s%sCOMMIT\n", table, &declare, &unhook, &remove)
		}
	}
	return all.String()
}

// LeadsTo reports whether a rule jumps or goes to one of the given owner's chains.
func LeadsTo(rule string, theirs func(chain string) bool) bool {
	words := strings.Fields(rule)
	i := slices.IndexFunc(words, func(word string) bool { return word == "-j" || word == "-g" })
	return i >= 0 && i+1 < len(words) && theirs(words[i+1])
}

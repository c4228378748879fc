package iptsim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// builtin are the built-in chains of the tables.
var builtin = map[string][]string{
	"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
	"filter": {"INPUT", "FORWARD", "OUTPUT"},
	"nat":    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
}

// Tables are a node's tables of one IP family.
type Tables struct {
	family model.Family
	tables map[string]table
}

type table map[string]*chain

// chain never changes after its table is committed.
type chain struct {
	name   string
	policy string // built-in chains only
	rules  []rule
}

// NewTables returns tables without rules, with the policy ACCEPT.
func NewTables(f model.Family) *Tables {
	t := &Tables{f, map[string]table{}}
	for name, chains := range builtin {
		t.tables[name] = table{}
		for _, c := range chains {
			t.tables[name][c] = &chain{name: c, policy: "ACCEPT"}
		}
	}
	return t
}

// Restore restores a text as iptables-restore --noflush does. A table changes at its COMMIT, or not at all.
func (t *Tables) Restore(text string) error {
	var now *restoring
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		var err error
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '*':
			now = &restoring{t.family, line[1:], maps.Clone(t.tables[line[1:]]), map[string]bool{}}
		case now == nil:
			err = errors.New("no table is open")
		case line == "COMMIT":
			if err = now.check(); err == nil {
				t.tables[now.name], now = now.chains, nil
			}
		default:
			err = now.line(line)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	if now != nil {
		return fmt.Errorf("table %s has no COMMIT", now.name)
	}
	return nil
}

// restoring is a table before its COMMIT.
type restoring struct {
	family model.Family
	name   string
	chains table
	owned  map[string]bool // chains that may be written
}

func (r *restoring) line(line string) error {
	if line[0] == ':' {
		return r.declare(line[1:])
	}
	verb, rest, _ := strings.Cut(line, " ")
	name, rest, _ := strings.Cut(rest, " ")
	c := r.chains[name]
	if c == nil {
		return fmt.Errorf("no chain %s", name)
	}
	switch verb {
	case "-A":
		return r.insert(c, len(c.rules), rest)
	case "-I":
		at, rest, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(at)
		if err != nil || n < 1 || n > len(c.rules)+1 {
			return fmt.Errorf("no place %q", at)
		}
		return r.insert(c, n-1, rest)
	case "-D":
		return r.remove(c, rest)
	case "-X":
		if c.policy != "" || len(c.rules) > 0 || rest != "" {
			return errors.New("can't be deleted")
		}
		delete(r.chains, name)
		return nil
	}
	return fmt.Errorf("unknown command %q", verb)
}

// declare makes or empties a chain, or sets the policy of a built-in one.
func (r *restoring) declare(rest string) error {
	var c chain
	var counters string
	if _, err := fmt.Sscan(rest, &c.name, &c.policy, &counters); err != nil {
		return fmt.Errorf("a chain is declared by its name, policy and counters: %w", err)
	}
	if c.policy != "-" {
		c.rules = slices.Clone(r.chains[c.name].rules)
	} else if c.policy = ""; r.owned[c.name] {
		return errors.New("a chain is declared twice")
	}
	r.chains[c.name], r.owned[c.name] = &c, true
	return nil
}

func (r *restoring) insert(c *chain, at int, text string) error {
	rule, err := parseRule(r.family, text)
	if err != nil {
		return err
	}
	c = r.writable(c)
	c.rules = slices.Insert(c.rules, at, rule)
	return nil
}

// remove deletes a rule by its number, or the first one with this text.
func (r *restoring) remove(c *chain, which string) error {
	i := slices.IndexFunc(c.rules, func(rule rule) bool { return rule.text == which })
	if n, err := strconv.Atoi(which); err == nil {
		i = n - 1
	}
	if i < 0 || i >= len(c.rules) {
		return errors.New("no such rule")
	}
	c = r.writable(c)
	c.rules = slices.Delete(c.rules, i, i+1)
	return nil
}

// writable returns the chain, or a copy of it if it is committed.
func (r *restoring) writable(c *chain) *chain {
	if !r.owned[c.name] {
		c = &chain{name: c.name, policy: c.policy, rules: slices.Clone(c.rules)}
		r.chains[c.name], r.owned[c.name] = c, true
	}
	return c
}

// check looks for jumps to chains that are missing.
func (r *restoring) check() error {
	for _, c := range r.chains {
		for _, rule := range c.rules {
			to := r.chains[rule.target.chain]
			if rule.target.chain != "" && (to == nil || to.policy != "") {
				return fmt.Errorf("chain %s: %s: no such chain", c.name, rule.text)
			}
		}
	}
	return nil
}

// Save returns the output of iptables-save, tables and chains sorted.
func (t *Tables) Save() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.tables)) {
		chains := t.tables[name]
		names := slices.Sorted(maps.Keys(chains))
		fmt.Fprintf(&b, "*%s\n", name)
		for _, c := range names {
			fmt.Fprintf(&b, ":%s %s [0:0]\n", c, cmp.Or(chains[c].policy, "-"))
		}
		for _, c := range names {
			for _, r := range chains[c].rules {
				fmt.Fprintf(&b, "-A %s %s\n", c, r.text)
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// Clone returns a copy.
func (t *Tables) Clone() *Tables { return &Tables{t.family, maps.Clone(t.tables)} }

package iptsim

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

var savedCounters = regexp.MustCompile(`^\[\d+:\d+\] `)

// ReadSaved reads the output of iptables-save or ip6tables-save, also with rules of others. Rules
// with something that the simulator does not know match no packet; unread has their text, with
// table and chain.
func ReadSaved(f model.Family, text string) (t *Tables, unread []string, err error) {
	t = NewTables(f)
	var table string
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = savedCounters.ReplaceAllString(strings.TrimSpace(line), "")
		chains := t.tables[table]
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '*':
			table = line[1:]
		case line == "COMMIT":
			table = ""
		case table == "":
			return nil, nil, fmt.Errorf("line %d: %s: no table is open", n, line)
		case chains == nil: // raw, security
		case line[0] == ':':
			fields := strings.Fields(line[1:])
			if len(fields) < 2 {
				return nil, nil, fmt.Errorf("line %d: %s: want a chain and its policy", n, line)
			}
			chains[fields[0]] = &chain{name: fields[0], policy: strings.Trim(fields[1], "-")}
		default:
			rest, isRule := strings.CutPrefix(line, "-A ")
			name, rest, _ := strings.Cut(rest, " ")
			c := chains[name]
			if !isRule || c == nil {
				return nil, nil, fmt.Errorf("line %d: %s: want a rule of a chain that is declared", n, line)
			}
			rule, err := parseRule(f, table, rest, true)
			if err != nil {
				rule = Rule{Text: rest, Unread: true}
			}
			c.rules = append(c.rules, rule)
		}
	}
	if table != "" {
		return nil, nil, fmt.Errorf("table %s has no COMMIT", table)
	}
	for name, chains := range t.tables {
		unread = append(unread, chains.dropUnknown(name)...)
		for _, c := range chains {
			c.index()
		}
	}
	return t, unread, nil
}

// dropUnknown also marks jumps to targets that are no chains, and returns all marked rules.
func (t table) dropUnknown(name string) (unread []string) {
	for _, c := range t {
		for i := range c.rules {
			rule := &c.rules[i]
			if j, ok := rule.Target.(Jump); ok && (t[j.Chain] == nil || t[j.Chain].policy != "") {
				*rule = Rule{Text: rule.Text, Unread: true}
			}
			if rule.Unread {
				unread = append(unread, fmt.Sprintf("%s: -A %s %s", name, c.name, rule.Text))
			}
		}
	}
	return unread
}

// longChain is the number of rules from which on a chain has an index.
const longChain = 32

// index lets packets skip rules for other destinations: kube-proxy lists all Services in one chain.
func (c *chain) index() {
	if len(c.rules) < longChain {
		return
	}
	c.byDest = map[netip.Addr][]int{}
	for i, rule := range c.rules {
		dest := slices.IndexFunc(rule.Matches, func(m Match) bool {
			a, ok := m.(Address)
			return ok && a.Dest && !a.Not && masked(a.Addr, a.Mask) == a.Addr &&
				masked(allOnes(a.Addr), a.Mask) == allOnes(a.Addr)
		})
		if dest < 0 {
			c.others = append(c.others, i)
			continue
		}
		a := rule.Matches[dest].(Address).Addr
		c.byDest[a] = append(c.byDest[a], i)
	}
}

func allOnes(a netip.Addr) netip.Addr {
	ones, _ := netip.AddrFromSlice(bytes.Repeat([]byte{0xff}, a.BitLen()/8))
	return ones
}

// following returns the first rule from one on that may match a packet to a destination.
func (c *chain) following(from int, dest netip.Addr) int {
	if c.byDest == nil {
		return from
	}
	next := len(c.rules)
	for _, list := range [][]int{c.others, c.byDest[dest]} {
		if i, _ := slices.BinarySearch(list, from); i < len(list) {
			next = min(next, list[i])
		}
	}
	return next
}

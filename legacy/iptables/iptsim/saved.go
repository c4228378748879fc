package iptsim

import (
	"fmt"
	"regexp"
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

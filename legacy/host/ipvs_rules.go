package host

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// companionPrefix is what the names of the companion's chains begin with.
const companionPrefix = "VMAPD-IPVS-"

// companionProbe is a text with what the companion needs beyond iptables.Probe. The sets
// must be there.
func companionProbe(f model.Family) string {
	set := probePrefix + strings.TrimPrefix(ipvs.Inside.In(f), "VMAPD")
	return "*mangle\n:" + companionPrefix + "PROBE - [0:0]\n" +
		"-A " + companionPrefix + "PROBE -m ipvs --ipvs -m set --match-set " + set + " dst,dst -j SET --map-set " + set + " dst,dst --map-mark\n" +
		"COMMIT\n"
}

// listing is what iptables-save lists: by table and chain, the rules without "-A" and the
// chain's name.
type listing map[string]map[string][]string

// list reads all rules.
func (p *programs) list(ctx context.Context) (listing, error) {
	var stderr strings.Builder
	cmd := p.command(ctx, "-save")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd.Path, err, firstLines(stderr.String()))
	}
	return parseListing(string(out))
}

func parseListing(text string) (listing, error) {
	l := listing{}
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "", line[0] == '#', line == "COMMIT":
		case line[0] == '*':
			table = line[1:]
			l[table] = map[string][]string{}
		case line[0] == ':' && table != "":
			name, _, _ := strings.Cut(line[1:], " ")
			l[table][name] = nil
		case strings.HasPrefix(line, "-A ") && table != "":
			name, rule, _ := strings.Cut(line[3:], " ")
			l[table][name] = append(l[table][name], normal(rule))
		default:
			return nil, fmt.Errorf("iptables-save: unknown line %q", line)
		}
	}
	return l, nil
}

// normal makes alike how the programs list a rule and how we write it: they leave out
// prefixes that everybody has, and quote only where they must.
func normal(rule string) string {
	words := strings.Fields(strings.ReplaceAll(rule, `"`, ""))
	var kept []string
	for i := 0; i < len(words); i++ {
		if (words[i] == "-s" || words[i] == "-d") && i+1 < len(words) && (words[i+1] == "0.0.0.0/0" || words[i+1] == "::/0") {
			i++
			continue
		}
		kept = append(kept, words[i])
	}
	return strings.Join(kept, " ")
}

// hold reports whether the companion is there, and nothing else of ours.
func (l listing) hold(c *ipvs.Companion) bool {
	missing, stale := l.jumps(c)
	if len(missing) > 0 || len(stale) > 0 || len(l.oldChains(c)) > 0 {
		return false
	}
	for _, t := range c.Tables {
		for _, chain := range t.Chains {
			have, ok := l[t.Name][chain.Name]
			var want []string
			for _, r := range chain.Rules {
				want = append(want, normal(r.Text(c.Family)))
			}
			if !ok || !slices.Equal(have, want) {
				return false
			}
		}
	}
	return true
}

// jumps returns those of chains where ours are not just the first rules, in the order that
// Companion.Text makes, and, by table, what deletes all those that are there, the last
// first, since they are told by number. A table comes into force at once, so that packets
// never meet none.
func (l listing) jumps(c *ipvs.Companion) (missing []ipvs.JumpRule, stale map[string][]string) {
	type place struct{ table, chain string }
	wanted := map[place][]ipvs.JumpRule{}
	for _, j := range c.Jumps {
		at := place{j.Table, j.Chain}
		wanted[at] = append(wanted[at], j)
		if l[j.Table][j.Chain] == nil {
			missing = append(missing, j)
		}
	}
	stale = map[string][]string{}
	for table, chains := range l {
		for chain, rules := range chains {
			if strings.HasPrefix(chain, companionPrefix) || rules == nil {
				continue
			}
			jumps := wanted[place{table, chain}]
			var want, have, remove []string
			for _, j := range slices.Backward(jumps) { // each is inserted before those that are there
				want = append(want, normal(j.Rule.Text(c.Family)))
			}
			for i, rule := range slices.Backward(rules) {
				if leadsToUs(rule) {
					have = append(have, rule)
					remove = append(remove, fmt.Sprintf("-D %s %d", chain, i+1))
				}
			}
			if len(have) == len(want) && slices.Equal(rules[:len(want)], want) {
				continue
			}
			missing = append(missing, jumps...)
			stale[table] = append(stale[table], remove...)
		}
	}
	maps.DeleteFunc(stale, func(_ string, lines []string) bool { return len(lines) == 0 })
	return missing, stale
}

func leadsToUs(rule string) bool {
	words := strings.Fields(rule)
	for i, w := range words[:max(len(words)-1, 0)] {
		if (w == "-j" || w == "-g") && strings.HasPrefix(words[i+1], companionPrefix) {
			return true
		}
	}
	return false
}

// oldChains returns chains that another version of us left, by table.
func (l listing) oldChains(c *ipvs.Companion) map[string][]string {
	old := map[string][]string{}
	for table, chains := range l {
		for name := range chains {
			if strings.HasPrefix(name, companionPrefix) && !hasChain(c, table, name) {
				old[table] = append(old[table], name)
			}
		}
	}
	return old
}

func hasChain(c *ipvs.Companion, table, name string) bool {
	return slices.ContainsFunc(c.Tables, func(t ipvs.Table) bool {
		return t.Name == table && slices.ContainsFunc(t.Chains, func(c ipvs.Chain) bool { return c.Name == name })
	})
}

// setCompanion replaces our rules, and puts our jumps before the rules of others.
func (f *serverFamily) setCompanion(ctx context.Context, c *ipvs.Companion) error {
	l, err := f.list(ctx)
	if err != nil {
		return err
	}
	return f.restoreText(ctx, l.replaceBy(c))
}

// replaceBy returns what makes the companion of what is listed, each table at once.
func (l listing) replaceBy(c *ipvs.Companion) string {
	missing, stale := l.jumps(c)
	old := l.oldChains(c)
	var b strings.Builder
	table, declared := "", false
	for line := range strings.Lines(c.Text(missing)) {
		switch {
		case line[0] == '*':
			table, declared = strings.TrimSpace(line[1:]), false
		case line[0] != ':' && !declared:
			declared = true
			for _, name := range old[table] {
				fmt.Fprintf(&b, ":%s - [0:0]\n", name)
			}
			for _, del := range stale[table] {
				b.WriteString(del + "\n")
			}
		}
		if line == "COMMIT\n" {
			for _, name := range old[table] {
				fmt.Fprintf(&b, "-X %s\n", name)
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

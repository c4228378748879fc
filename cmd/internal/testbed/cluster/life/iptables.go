package life

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ParseIPTables returns vmapd's part of the output of iptables-save: its chains, the rules in them
// with their order, and the rules that lead to them, whose place among others' is no matter of ours.
func ParseIPTables(family, saved string) (Table, error) {
	counters := regexp.MustCompile(` ?\[\d+:\d+\]`)
	var t Table
	table := ""
	place := map[string]int{}
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(counters.ReplaceAllString(line, ""))
		// render does not know the program's abilities.
		line = strings.TrimSuffix(line, " --random-fully")
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table, place = name, map[string]int{}
		}
		if !strings.Contains(line, "VMAPD-") {
			continue
		}
		prefix := family + " " + table
		if words := strings.Fields(line); words[0] == "-A" && strings.HasPrefix(words[1], "VMAPD-") {
			place[words[1]]++
			prefix += fmt.Sprintf(" rule %02d", place[words[1]])
		}
		t = append(t, prefix+" "+line)
	}
	slices.Sort(t)
	return t, nil
}

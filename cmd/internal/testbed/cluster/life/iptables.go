package life

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// ParseIPTables returns vmapd's part of the output of iptables-save: its chains, the rules in them
// with their order, and the rules that lead to them, whose place among others' is no matter of ours.
func ParseIPTables(family, saved string) Table {
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
	return t
}

// renderedIPTables loads rendered rules of the backend iptables into a new network namespace, and
// lists them there.
func (r *Run) renderedIPTables(ctx context.Context, how Rendering, node, objects string) (Table, error) {
	scratch, err := lab.NewNamespace("scratch")
	if err != nil {
		return nil, err
	}
	defer func() { _ = scratch.Close() }() // it ends with this process at the latest
	for family, program := range programs() {
		rules, err := r.render(ctx, how, node, objects, "--ip-family", family)
		if err != nil {
			return nil, err
		}
		load := scratch.Command(ctx, program+"-restore", "--noflush")
		load.Stdin = strings.NewReader(rules)
		if out, err := load.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("load the rendered rules: %w: %s", err, out)
		}
	}
	var table Table
	err = scratch.Do(func() error {
		table, err = listIPTables(func(args ...string) *exec.Cmd { return exec.CommandContext(ctx, args[0], args[1:]...) })
		return err
	})
	return table, err
}

func listIPTables(command func(args ...string) *exec.Cmd) (Table, error) {
	var both Table
	for family, program := range programs() {
		out, err := command(program + "-save").Output()
		if err != nil {
			return nil, fmt.Errorf("%s-save: %w", program, err)
		}
		both = append(both, ParseIPTables(family, string(out))...)
	}
	return both, nil
}

func programs() map[string]string { return map[string]string{"ipv4": "iptables", "ipv6": "ip6tables"} }

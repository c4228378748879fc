package e2e

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed tests.txt
var tests string

// Test is one of Kubernetes' tests.
type Test struct {
	Name  string
	Alone bool // no other test may run at the same time
	Nodes int  // how many it needs, if they are more than others need
}

// Tests returns the tests of tests.txt.
func Tests() ([]Test, error) { return parseTests(tests) }

func parseTests(text string) ([]Test, error) {
	var all []Test
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, alone := strings.CutPrefix(line, "alone: ")
		name, six := strings.CutPrefix(name, "six nodes: ")
		if !strings.HasPrefix(name, "[") {
			return nil, fmt.Errorf("list of tests: %q is not the full name of a test", line)
		}
		if slices.ContainsFunc(all, func(t Test) bool { return t.Name == name }) {
			return nil, fmt.Errorf("list of tests: %q is in it twice", name)
		}
		alone = alone || strings.Contains(name, "[Serial]") || strings.Contains(name, "[Disruptive]")
		t := Test{Name: name, Alone: alone}
		if six {
			t.Nodes = 6
		}
		all = append(all, t)
	}
	return all, nil
}

package e2e

import (
	_ "embed"
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
func Tests() []Test { return parseTests(tests) }

func parseTests(text string) (all []Test) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, alone := strings.CutPrefix(line, "alone: ")
		name, six := strings.CutPrefix(name, "six nodes: ")
		t := Test{Name: name, Alone: alone || strings.Contains(name, "[Serial]") || strings.Contains(name, "[Disruptive]")}
		if six {
			t.Nodes = 6
		}
		all = append(all, t)
	}
	return all
}

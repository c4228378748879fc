package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheContractIsShown checks the table "From the contract to a test": it names all
// scenarios, no scenario or Go test that does not exist, and no cell is empty.
func TestTheContractIsShown(t *testing.T) {
	text, err := os.ReadFile("../../testdata/scenario/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## From the contract to a test\n")
	table, _, _ = strings.Cut(table, "\n## ")
	missing := map[string]bool{}
	exists := map[string]bool{}
	for _, s := range scenarios(t) {
		missing[s.name], exists[s.name] = true, true
	}
	tests := goTests(t)
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 2 || strings.HasPrefix(line, "|---") {
			continue
		}
		what, shown := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		if heading := strings.HasPrefix(what, "**"); len(cells) != 4 || what == "" || heading != (shown == "") {
			t.Errorf("not a row of two cells: %s", line)
		}
		rows++
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(shown, -1) {
			if !exists[m[1]] {
				t.Errorf("%s: there is no scenario %s", what, m[1])
			}
			delete(missing, m[1])
		}
		for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(shown, -1) {
			if !tests[name] {
				t.Errorf("%s: there is no %s", what, name)
			}
		}
	}
	if rows < 50 {
		t.Errorf("only %d rows were found", rows)
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("scenario %s is not in the table of testdata/scenario/README.md", name)
	}
}

// goTests returns the names of this repository's tests.
func goTests(t *testing.T) map[string]bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "grep", "-rhoE", "--include=*_test.go", `^func Test\w+`, "../..").Output()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for line := range bytes.Lines(out) {
		tests[strings.TrimSpace(strings.TrimPrefix(string(line), "func "))] = true
	}
	return tests
}

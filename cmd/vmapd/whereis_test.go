package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWhereIsLeadsToTheFile checks the section "Where is …?": each of its files exists, and
// declares the identifiers that the entry says are in it.
func TestWhereIsLeadsToTheFile(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Where is …?\n")
	section, _, _ = strings.Cut(section, "\n## ")
	entries := strings.Split(section, "\n- **")[1:]
	if len(entries) < 10 {
		t.Errorf("found %d questions, want 10 or more", len(entries))
	}
	for _, entry := range entries {
		question, answer, _ := strings.Cut(entry, "**")
		var names []string
		files := 0
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(answer, -1) {
			if !strings.Contains(m[1], "/") {
				names = append(names, m[1])
				continue
			}
			files++
			source, err := os.ReadFile(filepath.Join(root, m[1]))
			if err != nil {
				t.Errorf("%s: %v", question, err)
			}
			for _, name := range names {
				declared := regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |var |const |\t)` + name + `\b`)
				if !declared.Match(source) {
					t.Errorf("%s: %s does not declare %s", question, m[1], name)
				}
			}
			names = nil
		}
		if files == 0 || len(names) > 0 {
			t.Errorf("%s: names %d files, and these identifiers without one: %q", question, files, names)
		}
	}
}

// Each direct dependency has its reason in CONTRIBUTING.md.
func TestEachDependencyHasAReason(t *testing.T) {
	root := filepath.Dir(testdata(t))
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	modules, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`(?m)^\t(\S+/\S+) v\S+$`).FindAllStringSubmatch(string(modules), -1)
	if len(direct) < 20 {
		t.Fatalf("go.mod has %d direct dependencies: %q", len(direct), direct)
	}
	for _, m := range direct {
		if !strings.Contains(string(page), "`"+m[1]+"`") {
			t.Errorf("CONTRIBUTING.md has no reason for %s", m[1])
		}
	}
}

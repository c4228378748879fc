package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// machine is a line of the table: it has run tests.
type machine struct{ kernel, processor, nft string }

// results are those of all tests by machine, package and name; "" is that of a test that has not
// ended. Of a test that has run several times, the last result counts.
type results map[machine]map[string]map[string]string

// table prints the results in files that make test-vm has left, as Markdown. A run may have had some
// of the tests only.
func table(w io.Writer, files []string) error {
	all := results{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = all.read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
	_, err := io.WriteString(w, all.String())
	return err
}

// read reads a file: the machine, the package, and what "go test -v" prints.
func (all results) read(from io.Reader) error {
	var m machine
	var tests map[string]string
	in := bufio.NewScanner(from)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := clean(in.Text())
		if name, ok := strings.CutPrefix(line, "=== RUN "); ok && tests != nil {
			tests[strings.TrimSpace(name)] = ""
			continue
		}
		if result, name, ok := ended(line); ok && tests != nil {
			tests[name] = result
			continue
		}
		if _, err := fmt.Sscanf(line, "Linux %s on %s nftables %s", &m.kernel, &m.processor, &m.nft); err == nil {
			m.processor = strings.TrimSuffix(m.processor, ",")
			continue
		}
		if pkg, ok := strings.CutPrefix(line, "go test ./"); ok {
			if all[m] == nil {
				all[m] = map[string]map[string]string{}
			}
			if all[m][pkg] == nil {
				all[m][pkg] = map[string]string{}
			}
			tests = all[m][pkg]
		}
	}
	return in.Err()
}

func (all results) String() string {
	packages := map[string]bool{}
	for _, m := range all {
		for pkg := range m {
			packages[pkg] = true
		}
	}
	columns := slices.Sorted(maps.Keys(packages))
	var b strings.Builder
	fmt.Fprintf(&b, "| Linux | processor | nft | %s |\n|---|---|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, m := range slices.SortedFunc(maps.Keys(all), func(a, b machine) int {
		return cmp.Or(cmp.Compare(a.processor, b.processor), cmp.Compare(a.kernel, b.kernel), cmp.Compare(a.nft, b.nft))
	}) {
		fmt.Fprintf(&b, "| %s | %s | %s |", m.kernel, m.processor, strings.TrimPrefix(m.nft, "v"))
		for _, pkg := range columns {
			fmt.Fprintf(&b, " %s |", counts(all[m][pkg]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// counts counts the results of tests.
func counts(tests map[string]string) string {
	n := map[string]int{}
	for _, result := range tests {
		n[result]++
	}
	var parts []string
	for _, c := range []struct{ result, word string }{
		{"PASS", "passed"}, {"FAIL", "failed"}, {"SKIP", "skipped"}, {"", "did not end"},
	} {
		if n[c.result] > 0 {
			parts = append(parts, fmt.Sprint(n[c.result], " ", c.word))
		}
	}
	return strings.Join(parts, ", ")
}

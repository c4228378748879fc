package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Parts of a run add up, and a later result replaces an earlier one.
func TestTable(t *testing.T) {
	const old, big = "Linux 5.10.0-32 on amd64, nftables v1.0.6 (Lester Gooch #5)\n", "Linux 6.1.0-56 on s390x, nftables v1.0.6\n"
	var files []string
	for i, text := range []string{
		old + "go test ./nft/kernel\n=== RUN   TestA\n=== RUN   TestA/x\n    --- FAIL: TestA/x (0.10s)\n--- FAIL: TestA (0.10s)\nFAIL\n",
		old + "go test ./nft/kernel\n\x16=== RUN   TestA\n\x16=== RUN   TestA/x\n    \x16--- PASS: TestA/x (0.10s)\n\x16--- PASS: TestA (0.10s)\nPASS\n",
		big + "go test ./cmd/vmapd\n=== RUN   TestB\n=== RUN   TestC\n--- SKIP: TestB (0.00s)\n",
	} {
		name := filepath.Join(t.TempDir(), string(rune('a'+i)))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	want := `| Linux | processor | nft | cmd/vmapd | nft/kernel |
|---|---|---|---|---|
| 5.10.0-32 | amd64 | 1.0.6 |  | 2 passed |
| 6.1.0-56 | s390x | 1.0.6 | 1 skipped, 1 did not end |  |
`
	var got strings.Builder
	if err := table(&got, files); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The output has what failed, and no line of a test that passed. The names come last.
func TestReport(t *testing.T) {
	const run = `=== RUN   TestA
=== PAUSE TestA
=== RUN   TestB
    b_test.go:7: B is well
=== CONT  TestA
    a_test.go:3: A is at work
=== NAME  TestB
--- PASS: TestB (0.10s)
=== RUN   TestC
    c_test.go:1: for no reason
--- SKIP: TestC (0.00s)
=== NAME  TestA
    a_test.go:4: A has no rules
--- FAIL: TestA (2.00s)
FAIL
--- FAIL: exit code 1
`
	const want = `=== TestA
    a_test.go:3: A is at work
    a_test.go:4: A has no rules
1 passed, 3 failed, 1 skipped
skipped without a reason that is allowed: TestC
--- FAIL: TestA
--- FAIL: exit code 1
`
	r := newReport()
	for line := range strings.Lines(run) {
		r.line(marker + strings.TrimRight(line, "\n"))
	}
	var got strings.Builder
	good := r.print(&got)
	if diff := cmp.Diff(want, got.String()); good || diff != "" {
		t.Errorf("well is %v (-want +got):\n%s", good, diff)
	}
}

// The sums have the package and its time, and the result before them.
func TestHeading(t *testing.T) {
	for result, want := range map[string]string{
		"PASS": "ok  \t./nft/kernel\t1.5s\t1 passed, 0 failed, 0 skipped\n",
		"FAIL": "FAIL\t./nft/kernel\t1.5s\t0 passed, 1 failed, 0 skipped\n--- FAIL: TestA\n",
	} {
		r := newReport()
		r.heading = "./nft/kernel\t1.5s\t"
		r.line("--- " + result + ": TestA (1.50s)")
		var got strings.Builder
		if good := r.print(&got); got.String() != want || good != (result == "PASS") {
			t.Errorf("well is %v: %q; want %q", good, &got, want)
		}
	}
}

// A program without a test that failed, but which ended badly, has failed: so has one that ran no test.
func TestReportOfAProgramThatEndedBadly(t *testing.T) {
	for _, run := range []string{
		"=== RUN   TestA\n--- PASS: TestA (0.10s)\npanic: test timed out after 20m0s\n",
		"=== RUN   TestA\n--- PASS: TestA (0.10s)\n--- FAIL: exit code 2\n",
		"=== RUN   TestA\n--- PASS: TestA (0.10s)\nFAIL\n",
		"PASS\n",
	} {
		r := newReport()
		for line := range strings.Lines(run) {
			r.line(strings.TrimRight(line, "\n"))
		}
		if r.print(io.Discard) {
			t.Errorf("all is said to be well after:\n%s", run)
		}
	}
}

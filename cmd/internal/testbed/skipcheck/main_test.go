package main

import (
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

package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/vmapd/vmapd/"

// arrows says which parts of the repository may import which.
var arrows = map[string]string{
	"model":    "model",
	"nft":      "model nft",
	"legacy":   "model legacy",
	"sync":     "model sync",
	"testdata": "",
	"internal": "",
	"cmd":      "model nft legacy sync cmd testdata internal",
}

// nftArrows says which packages of nft import which of nft's: a snapshot flows through them once, one after the other.
var nftArrows = map[string]string{
	"nft":               "",
	"nft/compile":       "nft",
	"nft/batch":         "nft nft/compile",
	"nft/kernel":        "nft nft/compile nft/batch nft/others nft/internal/nfnl",
	"nft/others":        "nft nft/internal/nfnl",
	"nft/tracer":        "nft/others nft/internal/nfnl",
	"nft/internal/nfnl": "",
	"nft/nftsim":        "nft",
	"nft/nftfake":       "",
}

// pure are the packages without sockets, files, clocks and Kubernetes, and what they
// must not import.
var pure = []string{"model", "model/persist", "nft", "nft/compile", "nft/batch", "legacy/iptables", "legacy/ipvs"}

// simulators run packets through rules, for tests and the test bench, as the API server answers them. Who else imports
// one is named with it.
var simulators = map[string]string{
	"nft/nftsim":             "",
	"legacy/iptables/iptsim": "legacy/ipvs/ipvssim",
	"legacy/ipvs/ipvssim":    "",
	"sync/informer/apitest":  "cmd/vmapd/tests/vmapdtest",
}

// listed has what each package imports, ours without the module: of this module and of what it links.
var listed = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.Command("go", "list", "-deps", "-f", `{{if not .Standard}}{{.ImportPath}} {{join .Imports " "}}{{end}}`,
		"./...")
	cmd.Dir = filepath.Join("..", "..")
	return cmd.Output()
})

func imports(t *testing.T) map[string][]string {
	t.Helper()
	out, err := listed()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[strings.TrimPrefix(fields[0], module)] = fields[1:]
	}
	return all
}

// isIn reports whether a word is in a list of words.
func isIn(word, list string) bool { return slices.Contains(strings.Fields(list), word) }

func TestImportsFollowTheArrows(t *testing.T) {
	all, ours := imports(t), 0
	for pkg, list := range all {
		top, _, _ := strings.Cut(pkg, "/")
		if strings.Contains(top, ".") {
			continue // another module's
		}
		ours++
		allowed, ok := arrows[top]
		if !ok {
			t.Errorf("package %s is in no known part of the repository", pkg)
		}
		for word := range strings.SplitSeq(pkg, "/") {
			if isIn(word, "util utils common helpers types pkg") {
				t.Errorf("package %s: %q says nothing", pkg, word)
			}
		}
		for _, i := range list {
			target, isOurs := strings.CutPrefix(i, module)
			part, _, _ := strings.Cut(target, "/")
			if isOurs && !isIn(part, allowed) {
				t.Errorf("%s imports %s; %s may import only: %s", pkg, target, top, allowed)
			}
			if allowed, ok := nftArrows[pkg]; ok && isOurs && part == "nft" && !isIn(target, allowed) {
				t.Errorf("%s imports %s; of nft it may import only: %s", pkg, target, allowed)
			}
			if users, ok := simulators[target]; ok && !strings.HasPrefix(pkg, "cmd/internal/testbed/") && !isIn(pkg, users) {
				t.Errorf("%s imports %s, which is for tests and cmd/internal/testbed", pkg, target)
			}
			foreign := !isOurs && strings.Contains(part, ".")
			system := isIn(i, "os net log log/slog syscall") || strings.HasPrefix(i, "net/http")
			if slices.Contains(pure, pkg) && (foreign || system) {
				t.Errorf("%s imports %s; it is pure", pkg, i)
			}
		}
	}
	for pkg := range nftArrows {
		if all[pkg] == nil {
			t.Errorf("there is no package %s", pkg)
		}
	}
	for _, pkg := range pure {
		if all[pkg] == nil {
			t.Errorf("there is no package %s", pkg)
		}
	}
	if ours < 50 {
		t.Errorf("go list found only %d packages", ours)
	}
}

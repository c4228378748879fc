package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
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
	"nft/internal/nfnl": "",
	"nft/nftsim":        "nft",
	"nft/nftfake":       "",
}

// pure are the packages without sockets, files, clocks and Kubernetes, and what they
// must not import.
var pure = []string{"model", "model/persist", "nft", "nft/compile", "nft/batch", "legacy/iptables", "legacy/ipvs"}

func imports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = filepath.Dir(vmapdtest.Testdata(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[strings.TrimPrefix(fields[0], module)] = fields[1:]
	}
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

func TestImportsFollowTheArrows(t *testing.T) {
	for pkg, list := range imports(t) {
		top, _, _ := strings.Cut(pkg, "/")
		allowed, ok := arrows[top]
		if !ok {
			t.Errorf("package %s is in no known part of the repository", pkg)
		}
		for _, i := range list {
			ours, ok := strings.CutPrefix(i, module)
			target, _, _ := strings.Cut(ours, "/")
			if ok && !strings.Contains(" "+allowed+" ", " "+target+" ") {
				t.Errorf("%s imports %s; %s may import only: %s", pkg, ours, top, allowed)
			}
		}
	}
}

// What is in internal belongs to the test bench; tests of all parts import it, too.
func TestOnlyTheBenchImportsWhatIsTheBenchs(t *testing.T) {
	for pkg, list := range imports(t) {
		for _, i := range list {
			ours, _ := strings.CutPrefix(i, module)
			if ours == "sync/informer/apitest" && !strings.HasPrefix(pkg, "cmd/internal/testbed/") && pkg != "cmd/vmapd/tests/vmapdtest" {
				t.Errorf("%s imports %s, which is for tests", pkg, ours)
			}
		}
	}
}

func TestASnapshotFlowsThroughNftOnce(t *testing.T) {
	all := imports(t)
	for pkg, allowed := range nftArrows {
		if all[pkg] == nil {
			t.Errorf("there is no package %s", pkg)
		}
		for _, i := range all[pkg] {
			ours, ok := strings.CutPrefix(i, module)
			if ok && strings.HasPrefix(ours+"/", "nft/") && !strings.Contains(" "+allowed+" ", " "+ours+" ") {
				t.Errorf("%s imports %s; of nft it may import only: %s", pkg, ours, allowed)
			}
		}
	}
}

func TestThePureCoreIsPure(t *testing.T) {
	all := imports(t)
	for _, pkg := range pure {
		if all[pkg] == nil {
			t.Errorf("there is no package %s", pkg)
		}
		for _, i := range all[pkg] {
			domain, _, _ := strings.Cut(i, "/")
			foreign := strings.Contains(domain, ".") && !strings.HasPrefix(i, module)
			switch {
			case foreign:
				t.Errorf("%s imports %s; only the standard library is allowed", pkg, i)
			case i == "os", i == "net", i == "log", i == "log/slog", strings.HasPrefix(i, "net/http"), i == "syscall":
				t.Errorf("%s imports %s", pkg, i)
			}
		}
	}
}

// simulators run packets through rules, for tests and the test bench. Who else imports one is named with it.
var simulators = map[string]string{
	"nft/nftsim":             "",
	"legacy/iptables/iptsim": "legacy/ipvs/ipvssim",
	"legacy/ipvs/ipvssim":    "",
}

func TestSimulatorsAreForTests(t *testing.T) {
	for pkg, list := range imports(t) {
		for _, i := range list {
			ours := strings.TrimPrefix(i, module)
			allowed, ok := simulators[ours]
			if ok && !strings.HasPrefix(pkg, "cmd/internal/testbed/") && !strings.Contains(" "+allowed+" ", " "+pkg+" ") {
				t.Errorf("%s imports %s, which is for tests and cmd/internal/testbed", pkg, ours)
			}
		}
	}
}

func TestNobodyUsesNamesThatSayNothing(t *testing.T) {
	for pkg := range imports(t) {
		for word := range strings.SplitSeq(pkg, "/") {
			switch word {
			case "util", "utils", "common", "helpers", "types", "pkg":
				t.Errorf("package %s: %q says nothing", pkg, word)
			}
		}
	}
}

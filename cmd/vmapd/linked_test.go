package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// tooMuch are packages that the daemon must not link, with all below them: the test bench; types, clients
// and documents of every group of the API. The pages of a program that its start touches
// stay in memory, and with these, they were more than half of what a small cluster takes.
// What requests need is in sync/kube/client. The others are for tests.
var tooMuch = []string{
	"k8s.io/client-go/applyconfigurations",
	"k8s.io/client-go/discovery",
	"k8s.io/client-go/gentype",
	"k8s.io/client-go/informers",
	"k8s.io/client-go/kubernetes",
	"k8s.io/client-go/testing",
	module + "sync/informer/apitest",
	module + "cmd/internal/testbed",
	module + "legacy/iptables/iptsim",
	module + "legacy/ipvs/ipvssim",
	module + "model/modeltest",
	module + "model/nettest",
	module + "nft/nftsim",
	"github.com/chromedp",
}

func TestTheClientOfEverythingIsNotLinked(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./cmd/vmapd")
	cmd.Dir = filepath.Dir(vmapdtest.Testdata(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	if text := string(out); !strings.Contains(text, "\nk8s.io/client-go/rest ") {
		t.Fatalf("go list says that no requests are made:\n%s", text)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if heavy(fields[0]) {
			continue // one complaint is enough
		}
		for _, i := range fields[1:] {
			if heavy(i) {
				t.Errorf("%s imports %s", fields[0], i)
			}
		}
	}
}

func heavy(pkg string) bool {
	for _, p := range tooMuch {
		if pkg == p || strings.HasPrefix(pkg, p+"/") {
			return true
		}
	}
	return false
}

package main

import (
	"slices"
	"strings"
	"testing"
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
	linked, queue := map[string]bool{}, []string{"cmd/vmapd"}
	all := imports(t)
	for len(queue) > 0 {
		pkg := queue[0]
		queue = queue[1:]
		for _, i := range all[pkg] {
			heavy := func(p string) bool { return i == p || strings.HasPrefix(i, p+"/") }
			switch next := strings.TrimPrefix(i, module); {
			case slices.ContainsFunc(tooMuch, heavy):
				t.Errorf("%s imports %s", pkg, i) // one complaint is enough: it is not followed
			case !linked[next]:
				linked[next] = true
				queue = append(queue, next)
			}
		}
	}
	if !linked["k8s.io/client-go/rest"] {
		t.Error("no requests are made, it seems: nothing is tested")
	}
}

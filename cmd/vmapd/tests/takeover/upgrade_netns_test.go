package takeover

import (
	"flag"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

var (
	base          = flag.String("base", "", "another version of this program, which TestUpgradeAndDowngrade changes to and fro")
	upgradeRounds = flag.Int("upgrade-rounds", 3, "upgrades of TestUpgradeAndDowngrade, each with a downgrade")
)

// startBase starts the other version.
func startBase(t *testing.T, ns *lab.Namespace, args ...string) *vmapdtest.Process {
	t.Helper()
	return vmapdtest.Launch(t, ns, *base, append([]string{*base}, args...)...)
}

// traffic are connections to a Service while daemons come and go: new ones all the time, and some that are kept.
type traffic struct {
	*lab.Clients
	first map[string]string // the pods that answered before, by network, if clients are to stay there
}

// The rates are those that two busy processors bear. A machine that is busy with other things stalls for seconds, and
// loses nothing.
func startTraffic(t *testing.T, w *lab.World, sticky bool) *traffic {
	t.Helper()
	tr := &traffic{&lab.Clients{
		Rate: 50, Kept: 5, Every: 20 * time.Millisecond, Within: func(lab.Path, bool) time.Duration { return 20 * time.Second },
	}, map[string]string{}}
	var routes []lab.Path
	for _, network := range vmapdtest.Networks {
		vip := netip.MustParseAddrPort(map[bool]string{true: "172.30.0.10:80", false: "[fd00:172:30::10]:80"}[strings.HasSuffix(network, "4")])
		a, err := w.Client.Ask(t.Context(), network, vip)
		if err != nil {
			t.Fatal(err)
		}
		if sticky {
			tr.first[network] = a.Pod
		}
		routes = append(routes, lab.Path{From: w.Client, Network: network, To: vip})
	}
	tr.Start(t.Context(), routes)
	return tr
}

// end stops the traffic, and fails the test for each connection that was lost.
func (tr *traffic) end(t *testing.T) {
	t.Helper()
	for _, s := range tr.Stop() {
		t.Logf("%s: %v; kept connections asked %d times", s.Network, &s.Report, s.Asked)
		if s.Lost() > 0 || s.Sent == 0 || len(s.Breaks) > 0 || s.Asked < 2*tr.Kept {
			t.Errorf("%s: %v; %d questions on kept connections, and what broke: %v", s.Network, &s.Report, s.Asked, s.Breaks)
		}
		if pod := tr.first[s.Network]; pod != "" && s.Answered[pod] < s.Sent {
			t.Errorf("%s: clients of %s were answered by %v", s.Network, pod, s.Answered)
		}
	}
}

// Another version of vmapd takes over what this one has in the kernel, and this one what the other has, while
// clients connect and talk: none is lost, clients stay with their endpoints, and nothing of the other version is left.
// "make -C cmd/internal/testbed test-upgrade" builds the other version.
func TestUpgradeAndDowngrade(t *testing.T) {
	if *base == "" {
		t.Skip("-base does not name another version: make -C cmd/internal/testbed test-upgrade")
	}
	for _, backend := range []string{"nftables", "iptables", "ipvs"} {
		for _, sticky := range []bool{false, true} {
			t.Run(backend+map[bool]string{true: "/affinity"}[sticky], func(t *testing.T) {
				if backend == "ipvs" {
					vmapdtest.NeedIPVS(t)
				}
				folder := vmapdtest.Demo(t)
				if sticky {
					folder = stickyDemo(t)
				}
				changeVersions(t, "--backend="+backend, "--from", folder, "--hostname-override", lab.NodeName)
			})
		}
	}
}

func changeVersions(t *testing.T, args ...string) {
	t.Helper()
	rules := func(w *lab.World) string { return structure(t, w.Node) + vmapdtest.RulesOf(t, w.Node) }
	fresh := func(start func(*testing.T, *lab.Namespace, ...string) *vmapdtest.Process) string {
		w := labtest.New(t)
		p := start(t, w.Node, args...)
		p.WaitFor(t, "msg=ready")
		defer vmapdtest.Stop(t, p)
		return rules(w)
	}
	ours, theirs := fresh(vmapdtest.Start), fresh(startBase)
	t.Logf("the versions program the same: %v", ours == theirs)

	w := labtest.New(t)
	p := startBase(t, w.Node, args...)
	p.WaitFor(t, "msg=ready")
	tr := startTraffic(t, w, strings.HasSuffix(t.Name(), "/affinity"))
	to := func(what, want string, start func(*testing.T, *lab.Namespace, ...string) *vmapdtest.Process) {
		time.Sleep(200 * time.Millisecond) // the traffic is under way
		vmapdtest.Stop(t, p)
		began := time.Now()
		p = start(t, w.Node, args...)
		p.WaitFor(t, "msg=ready")
		t.Logf("%s: ready after %v", what, time.Since(began).Round(time.Millisecond))
		if diff := cmp.Diff(want, rules(w)); diff != "" {
			t.Errorf("after the %s, the rules are not those of a new start (-want +got):\n%s", what, diff)
		}
	}
	for range *upgradeRounds {
		to("upgrade", ours, vmapdtest.Start)
		to("downgrade", theirs, startBase)
	}
	to("upgrade", ours, vmapdtest.Start)
	time.Sleep(200 * time.Millisecond)
	tr.end(t)
	vmapdtest.Stop(t, p)
}

// testdata/upgrade has tables as earlier layouts were: "vmapd render" of the demo's manifests by the last commit
// with each layout. A daemon takes them over under load, and leaves nothing of them.
func TestTablesOfEarlierLayoutsAreTakenOver(t *testing.T) {
	args := []string{"--backend=nftables", "--from", vmapdtest.Demo(t), "--hostname-override", lab.NodeName}
	w := labtest.New(t)
	p := vmapdtest.StartReady(t, w.Node, args...)
	want := structure(t, w.Node)
	vmapdtest.Stop(t, p)
	tables, err := filepath.Glob(filepath.Join(vmapdtest.Testdata(t), "upgrade/*.nft"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	for _, table := range tables {
		t.Run(strings.TrimSuffix(filepath.Base(table), ".nft"), func(t *testing.T) {
			w := labtest.New(t)
			vmapdtest.Feed(t, w.Node, "", "nft", "-f", table)
			if structure(t, w.Node) == want {
				t.Error("the table has today's layout: nothing is tested")
			}
			tr := startTraffic(t, w, false)
			time.Sleep(200 * time.Millisecond)
			p := vmapdtest.StartReady(t, w.Node, args...)
			testaid.Equal(t, "the table is not that of a new start", want, structure(t, w.Node))
			time.Sleep(200 * time.Millisecond)
			tr.end(t)
			vmapdtest.Stop(t, p)
		})
	}
}

// stickyDemo returns a folder with the manifests of the demo, in which the Service web has session affinity.
func stickyDemo(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	vmapdtest.EditDemo(t, folder, func(text string) string {
		return strings.Replace(text, "  type: LoadBalancer\n", "  type: LoadBalancer\n  sessionAffinity: ClientIP\n", 1)
	})
	return folder
}

// structure is what nft lists of a node without counters and elements that clients add. The chains of each table are
// sorted: nft lists them in the order in which they were made.
func structure(t *testing.T, ns *lab.Namespace) string {
	t.Helper()
	return listedChains.ReplaceAllStringFunc(vmapdtest.ListRuleset(t, ns, "--stateless", "--terse"), func(chains string) string {
		const end = "\n\t}\n"
		sorted := strings.SplitAfter(chains, end)
		slices.Sort(sorted)
		return strings.Join(sorted, "")
	})
}

var listedChains = regexp.MustCompile(`(?ms)(^\t(?:chain|set|map) [^\n]* \{\n.*?^\t\}\n)+`)

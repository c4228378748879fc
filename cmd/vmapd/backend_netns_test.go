package main

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/lab"
)

// rulesOf returns what iptables lists of us, in both families and variants.
func rulesOf(t *testing.T, ns *lab.Namespace) string {
	t.Helper()
	var kept []string
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save"} {
		out, err := ns.Command(t.Context(), program).Output()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "VMAPD-") {
				line, _, _ = strings.Cut(line, " [") // counters
				kept = append(kept, program+": "+strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(kept, "\n")
}

// askAlong makes connections to a cluster IP while something happens, and returns what
// became of them.
func askAlong(t *testing.T, w *lab.World, during func()) lab.Report {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	report := make(chan lab.Report)
	vip := netip.MustParseAddrPort("172.30.0.10:80")
	const rate = 100
	go func() {
		report <- lab.Load{Rate: rate, Ask: func(ctx context.Context) (lab.Answer, error) {
			return w.Client.Ask(ctx, "tcp4", vip)
		}}.Run(ctx)
	}()
	time.Sleep(200 * time.Millisecond) // the load is under way
	during()
	time.Sleep(200 * time.Millisecond)
	stop()
	return <-report
}

func killVmapd(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // killed, of course
}

// With the iptables backend, too, a restart changes nothing and loses nothing, and what
// others break is mended within the sync period.
func TestTheIPTablesBackendRestartsAndMends(t *testing.T) {
	w := newLab(t)
	args := []string{
		"--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName,
		"--backend=iptables", "--iptables-sync-period=300ms", "-v", "4",
	}
	first := startVmapd(t, w.Node, args...)
	first.waitFor(t, "msg=ready")
	before := rulesOf(t, w.Node)
	var second *process
	r := askAlong(t, w, func() {
		killVmapd(t, first)
		second = startVmapd(t, w.Node, args...)
		second.waitFor(t, "msg=ready")
	})
	if r.Lost() > 0 || r.Sent == 0 {
		t.Errorf("the client did notice the restart: %v", &r)
	}
	if diff := cmp.Diff(before, rulesOf(t, w.Node)); diff != "" {
		t.Errorf("the restart changed something (-before +after):\n%s", diff)
	}
	if strings.Contains(second.log.String(), "msg=applied") {
		t.Errorf("the restart wrote rules:\n%s", second.log)
	}
	for _, harm := range [][]string{
		{"iptables", "-t", "nat", "-F", "VMAPD-SERVICES"},
		{"iptables", "-t", "nat", "-F", "PREROUTING"},
		{"iptables", "-t", "nat", "-I", "PREROUTING", "-j", "ACCEPT"},
		{"ip6tables", "-F", "FORWARD"},
	} {
		if out, err := w.Node.Command(t.Context(), harm[0], harm[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", harm, err, out)
		}
		waitUntil(t, strings.Join(harm, " "), func() bool { return rulesOf(t, w.Node) == before })
	}
	if a, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort("172.30.0.10:80")); err != nil {
		t.Errorf("after all was mended: %+v, %v", a, err)
	}
	stopVmapd(t, second)
}

// waitUntil waits for something that takes the daemon a moment.
func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

// From one backend to the other and back, a client never notices, and what the old one
// had is gone.
func TestSwitchingBackendsLosesNothingAndLeavesNothing(t *testing.T) {
	w := newLab(t)
	args := []string{"--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName}
	p := startVmapd(t, w.Node, append(args, "--backend=nftables")...)
	p.waitFor(t, "msg=ready")
	for _, next := range []string{"iptables", "nftables", "iptables", "auto"} {
		r := askAlong(t, w, func() {
			stopVmapd(t, p)
			p = startVmapd(t, w.Node, append(args, "--backend="+next)...)
			p.waitFor(t, "msg=ready")
		})
		t.Logf("to %s: %v", next, &r)
		if r.Lost() > 0 || r.Sent == 0 {
			t.Errorf("the client noticed the switch to %s: %v\n%s", next, &r, p.log)
		}
		rules := rulesOf(t, w.Node)
		tables := strings.Contains(list(t, w.Node), "table ip vmapd") || strings.Contains(list(t, w.Node), "table ip6 vmapd")
		if next == "iptables" && (tables || rules == "") || next != "iptables" && (!tables || rules != "") {
			t.Errorf("after the switch to %s, our tables are there: %v; our rules:\n%s", next, tables, rules)
		}
	}
	stopVmapd(t, p)
}

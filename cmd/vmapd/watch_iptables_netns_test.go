package main

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// useVariant makes a variant of iptables the administrator's choice until the test ends.
func useVariant(t *testing.T, variant string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, does := range []string{"", "-save", "-restore"} {
			program, err := exec.LookPath(name + "-" + variant + does)
			if err != nil {
				t.Skip(err)
			}
			if program, err = filepath.EvalSymlinks(program); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program, filepath.Join(dir, name+does)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// Who flushes a table of iptables takes a jump of ours, which is looked for each second.
func TestWhatOthersDoToIPTablesIsPutBack(t *testing.T) {
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			useVariant(t, variant)
			w := newLab(t)
			p := startVmapd(t, w.Node, "--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName,
				"--backend=iptables", "--iptables-sync-period=1h")
			p.waitFor(t, "msg=ready")
			before := rulesOf(t, w.Node)
			if !strings.Contains(before, "iptables-"+variant) {
				t.Fatalf("the rules are not in iptables-%s:\n%s", variant, before)
			}
			for _, harm := range []string{
				"iptables -t nat -F",
				"ip6tables -t nat -F",
				"iptables -F",
				"iptables -t nat -D PREROUTING 1",
				"ip6tables -t nat -D PREROUTING 1",
				"ip6tables -D FORWARD 1",
				"iptables -t nat -F", // again
			} {
				words := strings.Fields(harm)
				feed(t, w.Node, "", words[0], words[1:]...)
				waitUntil(t, harm, func() bool { return rulesOf(t, w.Node) == before })
				for _, vip := range []string{"172.30.0.10:80", "[fd00:172:30::10]:80"} {
					if _, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(vip)); err != nil {
						t.Errorf("after %s was put right: %v\n%s", harm, err, p.log)
					}
				}
			}
			for _, want := range []string{"level=WARN msg=\"another program changed our rules", "level=INFO msg=\"rules changed by another program"} {
				if !strings.Contains(p.log.String(), want) {
					t.Errorf("the log does not say %s:\n%s", want, p.log)
				}
			}
			metrics := feed(t, w.Node, "", "curl", "-s", "http://127.0.0.1:10249/metrics")
			if !regexp.MustCompile(`(?m)^vmapd_foreign_changes_total [1-9]`).MatchString(metrics) {
				t.Errorf("the metrics count no changes of others:\n%s", metrics)
			}
			stopVmapd(t, p)
		})
	}
}

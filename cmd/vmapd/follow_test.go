package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// followed is a daemon with both files in a ConfigMap.
type followed struct {
	*apiCluster
	*process
	mode  string
	files *configMap
	now   map[string]string
}

// startFollowed starts one in a mode.
func startFollowed(t *testing.T, mode string) *followed {
	t.Helper()
	c := startCluster(t)
	f := &followed{apiCluster: c, mode: mode, now: map[string]string{
		"config.conf": c.config("mode: "+mode, "nodePortAddresses: [primary]"), "vmapd.conf": ownConfig(),
	}}
	f.files = newConfigMap(t, f.now)
	f.restart(t)
	return f
}

// restart starts a process, as the supervisor does after one has ended.
func (f *followed) restart(t *testing.T) {
	t.Helper()
	f.process = f.start(t, "--config", f.files.path("config.conf"), "--vmapd-config", f.files.path("vmapd.conf"),
		"--hostname-override", lab.NodeName)
	f.waitFor(t, "msg=ready")
}

func ownConfig(lines ...string) string {
	return "apiVersion: vmapd.io/v1alpha1\nkind: VmapdConfiguration\n" + strings.Join(lines, "\n") + "\n"
}

// set gives kube-proxy's file other lines beside the mode.
func (f *followed) set(t *testing.T, lines ...string) {
	t.Helper()
	f.now["config.conf"] = f.config(append([]string{"mode: " + f.mode}, lines...)...)
	f.files.set(t, f.now)
}

// mustEnd fails unless the process ends because fields changed.
func (p *process) mustEnd(t *testing.T, fields string) {
	t.Helper()
	if code := p.exit(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	want := `level=ERROR msg="exiting because of an error" err="the configuration changed (` + fields +
		`): it applies at the next start; the rules stay"`
	if _, got, _ := strings.Cut(lines[len(lines)-1], " "); got != want {
		t.Errorf("the last line without its time (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// A file that is broken is told of once, and changes nothing.
func TestABrokenFileIsSaidOnce(t *testing.T) {
	t.Parallel()
	f := startFollowed(t, "nftables")
	before := f.ruleset(t)
	valid := func() float64 {
		v, _ := value(f.scrape(t), "vmapd_config_last_reload_successful")
		return v
	}
	if valid() != 1 {
		t.Error("the first configuration counts as none")
	}
	for range 3 {
		f.set(t, "nodePortAddresses: [all]", "clusterCIDR: 10.0.0.0/40")
		time.Sleep(300 * time.Millisecond) // longer than the file must be quiet
	}
	said := f.files.path("config.conf") + ": clusterCIDR: Invalid value"
	f.waitFor(t, said)
	if n := strings.Count(f.log.String(), said); n != 1 {
		t.Errorf("what is wrong is said %d times", n)
	}
	if diff := cmp.Diff(before, f.ruleset(t)); diff != "" {
		t.Errorf("a broken file changed the rules (-before +after):\n%s", diff)
	}
	if valid() != 0 {
		t.Error("vmapd_config_last_reload_successful is not 0")
	}
	// What means the same as before is valid, and changes nothing.
	f.set(t, "nodePortAddresses: [primary]", "oomScoreAdj: -999 # the default")
	eventually(t, func() string {
		if valid() != 1 {
			return "vmapd_config_last_reload_successful is not 1"
		}
		return ""
	})
	f.mustStay(t)
}

// A field that differs ends the process, so that whoever supervises it starts it again, and the rules stay.
func TestAFieldThatDiffersEndsTheProcess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ line, said string }{
		"mode":             {"mode: iptables", "mode, iptables.minSyncPeriod"},
		"hostnameOverride": {"mode: nftables\nhostnameOverride: node-2", "hostnameOverride"},
		"the log":          {"mode: nftables\nlogging: {verbosity: 4}", "logging.verbosity"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t)
			// One file that is replaced, as configuration management does it.
			path := filepath.Join(t.TempDir(), "config.conf")
			write := func(line string) {
				t.Helper()
				if err := os.WriteFile(path+".new", []byte(c.config(line)), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(path+".new", path); err != nil {
					t.Fatal(err)
				}
			}
			write("mode: nftables\nhostnameOverride: " + lab.NodeName)
			p := c.start(t, "--config", path)
			p.waitFor(t, "msg=ready")
			before := c.ruleset(t)
			line := test.line
			if name != "hostnameOverride" {
				line += "\nhostnameOverride: " + lab.NodeName
			}
			write(line)
			p.mustEnd(t, test.said)
			if diff := cmp.Diff(before, c.ruleset(t)); diff != "" {
				t.Errorf("the end changed the rules (-before +after):\n%s", diff)
			}
			c.ask(t, webVIP)
		})
	}
}

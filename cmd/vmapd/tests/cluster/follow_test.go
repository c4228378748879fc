package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// followed is a daemon with both files in a ConfigMap.
type followed struct {
	*vmapdtest.Cluster
	*vmapdtest.Process
	mode  string
	files *vmapdtest.ConfigMap
	now   map[string]string
}

// startFollowed starts one in a mode.
func startFollowed(t *testing.T, mode string) *followed {
	t.Helper()
	c := vmapdtest.NewCluster(t)
	f := &followed{Cluster: c, mode: mode, now: map[string]string{
		"config.conf": c.Config("mode: "+mode, "nodePortAddresses: [primary]"), "vmapd.conf": ownConfig(),
	}}
	f.files = vmapdtest.NewConfigMap(t, f.now)
	f.Process = f.Start(t, "--config", f.files.Path("config.conf"), "--vmapd-config", f.files.Path("vmapd.conf"),
		"--hostname-override", lab.NodeName)
	f.WaitFor(t, "msg=ready")
	return f
}

func ownConfig(lines ...string) string {
	return "apiVersion: vmapd.io/v1alpha1\nkind: VmapdConfiguration\n" + strings.Join(lines, "\n") + "\n"
}

// set gives kube-proxy's file other lines beside the mode.
func (f *followed) set(t *testing.T, lines ...string) {
	t.Helper()
	f.now["config.conf"] = f.Config(append([]string{"mode: " + f.mode}, lines...)...)
	f.files.Set(t, f.now)
}

// A file that is broken is told of once, and changes nothing.
func TestABrokenFileIsSaidOnce(t *testing.T) {
	t.Parallel()
	f := startFollowed(t, "nftables")
	before := f.Ruleset(t)
	valid := func() float64 {
		v, _ := vmapdtest.Value(f.Scrape(t), "vmapd_config_last_reload_successful")
		return v
	}
	if valid() != 1 {
		t.Error("the first configuration counts as none")
	}
	for range 3 {
		f.set(t, "nodePortAddresses: [all]", "clusterCIDR: 10.0.0.0/40")
		time.Sleep(300 * time.Millisecond) // longer than the file must be quiet
	}
	said := f.files.Path("config.conf") + ": clusterCIDR: Invalid value"
	f.WaitFor(t, said)
	if n := strings.Count(f.Log.String(), said); n != 1 {
		t.Errorf("what is wrong is said %d times", n)
	}
	if diff := cmp.Diff(before, f.Ruleset(t)); diff != "" {
		t.Errorf("a broken file changed the rules (-before +after):\n%s", diff)
	}
	if valid() != 0 {
		t.Error("vmapd_config_last_reload_successful is not 0")
	}
	// The file as it was is valid, and changes nothing.
	f.set(t, "nodePortAddresses: [primary]")
	vmapdtest.Eventually(t, func() string {
		if valid() != 1 {
			return "vmapd_config_last_reload_successful is not 1"
		}
		return ""
	})
	f.MustStay(t)
}

// A change ends the process, so that whoever supervises it starts it again, and the rules stay.
func TestAChangeEndsTheProcess(t *testing.T) {
	t.Parallel()
	f := startFollowed(t, "nftables")
	before := f.Ruleset(t)
	f.mode = "iptables"
	f.set(t, "nodePortAddresses: [primary]")
	if code := f.Exit(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimSpace(f.Log.String()), "\n")
	const want = `level=ERROR msg="exiting because of an error" err="the configuration changed: ` +
		`it applies at the next start; the rules stay"`
	if _, got, _ := strings.Cut(lines[len(lines)-1], " "); got != want {
		t.Errorf("the last line without its time (-want +got):\n%s", cmp.Diff(want, got))
	}
	if diff := cmp.Diff(before, f.Ruleset(t)); diff != "" {
		t.Errorf("the end changed the rules (-before +after):\n%s", diff)
	}
	f.Ask(t, vmapdtest.WebVIP)
}

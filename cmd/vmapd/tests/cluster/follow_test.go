package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// What is wrong in a changed ConfigMap changes nothing, which a metric says. A valid change ends the process, so that
// whoever supervises it starts it again, and the rules stay.
func TestAChangedConfigMap(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	files := map[string]string{"vmapd.conf": "apiVersion: vmapd.io/v1alpha1\nkind: VmapdConfiguration\n"}
	config := func(lines ...string) map[string]string {
		files["config.conf"] = c.Config(lines...)
		return files
	}
	m := vmapdtest.NewConfigMap(t, config("mode: nftables", "nodePortAddresses: [primary]"))
	p := c.Start(t, "--config", m.Path("config.conf"), "--vmapd-config", m.Path("vmapd.conf"), "--hostname-override",
		lab.NodeName)
	p.WaitFor(t, "msg=ready")
	before := vmapdtest.ListRuleset(t, c.Node)
	valid := func(want float64) {
		t.Helper()
		vmapdtest.WaitUntil(t, "vmapd_config_last_reload_successful follows", func() bool {
			v, ok := vmapdtest.Value(c.Scrape(t), "vmapd_config_last_reload_successful")
			return ok && v == want
		})
	}
	valid(1)
	m.Set(t, config("mode: nftables", "nodePortAddresses: [all]", "clusterCIDR: 10.0.0.0/40"))
	valid(0)
	m.Set(t, config("mode: nftables", "nodePortAddresses: [primary]"))
	valid(1)
	p.MustStay(t)
	if n := strings.Count(p.Log.String(), m.Path("config.conf")+": clusterCIDR: Invalid value"); n != 1 {
		t.Errorf("what is wrong is said %d times", n)
	}

	m.Set(t, config("mode: iptables", "nodePortAddresses: [primary]"))
	if code := p.Exit(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	lines := strings.Split(strings.TrimSpace(p.Log.String()), "\n")
	const want = `level=ERROR msg="exiting because of an error" err="the configuration changed: ` +
		`it applies at the next start; the rules stay"`
	if _, got, _ := strings.Cut(lines[len(lines)-1], " "); got != want {
		t.Errorf("the last line without its time (-want +got):\n%s", cmp.Diff(want, got))
	}
	if diff := cmp.Diff(before, vmapdtest.ListRuleset(t, c.Node)); diff != "" {
		t.Errorf("the rules changed (-before +after):\n%s", diff)
	}
	c.Ask(t, vmapdtest.WebVIP)
}

package traffic

import (
	"context"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// A client that goes on connecting must not notice that vmapd is killed and started
// again; and the new one finds that there is nothing to write.
func TestKillAndRestartWritesNothingAndLosesNothing(t *testing.T) {
	for backend, rules := range map[string]func(*testing.T, *lab.Namespace) string{
		"nftables": func(t *testing.T, ns *lab.Namespace) string { return vmapdtest.ListRuleset(t, ns, "-a") }, "iptables": vmapdtest.RulesOf,
	} {
		t.Run(backend, func(t *testing.T) { killAndRestart(t, backend, rules) })
	}
}

func killAndRestart(t *testing.T, backend string, rules func(*testing.T, *lab.Namespace) string) {
	t.Helper()
	w := labtest.New(t)
	args := []string{"--backend", backend, "--from", vmapdtest.Demo(t), "--hostname-override", lab.NodeName, "-v", "4"}
	first := vmapdtest.StartReady(t, w.Node, args...)
	before := rules(t, w.Node)

	vip := netip.MustParseAddrPort("172.30.0.10:80")
	const rate = 200
	stop := lab.Load{Rate: rate, Ask: func(ctx context.Context) (lab.Answer, error) {
		return w.Client.Ask(ctx, "tcp4", vip)
	}}.Start()
	time.Sleep(500 * time.Millisecond) // the load is under way
	first.Kill(t)
	time.Sleep(500 * time.Millisecond)
	second := vmapdtest.StartReady(t, w.Node, args...)
	time.Sleep(500 * time.Millisecond)
	r := stop()
	t.Log(r.String())
	if r.Lost() > 0 || r.Sent < rate {
		t.Errorf("the client did notice: %v", &r)
	}
	if diff := cmp.Diff(before, rules(t, w.Node)); diff != "" {
		t.Errorf("the restart changed something, or gave it another handle (-before +after):\n%s", diff)
	}
	if strings.Contains(second.Log.String(), "msg=applied") {
		t.Errorf("the restart sent a batch:\n%s", second.Log)
	}

	// SIGTERM ends it, and leaves the rules.
	if err := second.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.Cmd.Wait(); err != nil {
		t.Errorf("vmapd did not end well: %v\n%s", err, second.Log)
	}
	if diff := cmp.Diff(before, rules(t, w.Node)); diff != "" {
		t.Errorf("the end changed something (-before +after):\n%s", diff)
	}

	// Cleanup removes them.
	vmapdtest.Cleanup(t, w.Node)
	if got := rules(t, w.Node); got != "" {
		t.Errorf("cleanup left:\n%s", got)
	}
}

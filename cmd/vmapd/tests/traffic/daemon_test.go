package traffic

import (
	"context"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// A client that goes on connecting must not notice that vmapd is killed and started
// again, and stays with its endpoint where a Service has session affinity; and the new one finds that there is nothing
// to write.
func TestKillAndRestartWritesNothingAndLosesNothing(t *testing.T) {
	listed := func(t *testing.T, ns *lab.Namespace) string { return vmapdtest.ListRuleset(t, ns, "-a") }
	for _, tt := range []struct {
		name, backend string
		sticky        bool
		rules         func(*testing.T, *lab.Namespace) string
	}{
		{"nftables", "nftables", false, listed},
		{"nftables, with affinity", "nftables", true, listed},
		{"iptables", "iptables", false, vmapdtest.RulesOf},
	} {
		t.Run(tt.name, func(t *testing.T) { killAndRestart(t, tt.backend, tt.sticky, tt.rules) })
	}
}

// remembering are elements that packets add.
var remembering = regexp.MustCompile(`\n\s*elements = \{[^}]* expires [^}]*\}`)

func killAndRestart(t *testing.T, backend string, sticky bool, listed func(*testing.T, *lab.Namespace) string) {
	t.Helper()
	t.Parallel() // the client's connections are most of the time
	w := labtest.New(t)
	rules := func(t *testing.T, ns *lab.Namespace) string { return remembering.ReplaceAllString(listed(t, ns), "") }
	from := vmapdtest.Demo(t)
	if sticky {
		from = t.TempDir()
		const spec = "spec:\n  type: LoadBalancer\n"
		vmapdtest.EditDemo(t, from, func(text string) string {
			return strings.Replace(text, spec, spec+"  sessionAffinity: ClientIP\n", 1)
		})
	}
	args := []string{"--backend", backend, "--from", from, "--hostname-override", lab.NodeName, "-v", "4"}
	first := vmapdtest.StartReady(t, w.Node, args...)
	before := rules(t, w.Node)

	vip := netip.MustParseAddrPort("172.30.0.10:80")
	const rate, much = 100, 50
	var answered atomic.Int64
	// A machine that is busy with other things stalls for seconds, and loses nothing.
	stop := lab.Load{Rate: rate, Timeout: 20 * time.Second, Ask: func(ctx context.Context) (lab.Answer, error) {
		a, err := w.Client.Ask(ctx, "tcp4", vip)
		answered.Add(1)
		return a, err
	}}.Start()
	goesOn := func() {
		t.Helper()
		from := answered.Load()
		vmapdtest.WaitUntil(t, "the client connects", func() bool { return answered.Load() >= from+much })
	}
	goesOn()
	first.Kill(t)
	goesOn()
	second := vmapdtest.StartReady(t, w.Node, args...)
	goesOn()
	r := stop()
	t.Log(r.String())
	if r.Lost() > 0 || sticky && len(r.Answered) != 1 {
		t.Errorf("the client did notice: %v, answered by %v", &r, r.Answered)
	}
	if diff := cmp.Diff(before, rules(t, w.Node)); diff != "" {
		t.Errorf("the restart changed something, or gave it another handle (-before +after):\n%s", diff)
	}
	if strings.Contains(second.Log.String(), "msg=applied") {
		t.Errorf("the restart sent a batch:\n%s", second.Log)
	}

	// SIGTERM ends it, and leaves the rules.
	vmapdtest.Stop(t, second)
	if diff := cmp.Diff(before, rules(t, w.Node)); diff != "" {
		t.Errorf("the end changed something (-before +after):\n%s", diff)
	}

	// Cleanup removes them.
	vmapdtest.Cleanup(t, w.Node)
	if got := rules(t, w.Node); got != "" {
		t.Errorf("cleanup left:\n%s", got)
	}
}

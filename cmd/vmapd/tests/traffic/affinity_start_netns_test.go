package traffic

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
)

// stickyManifests writes the demo's manifests with affinity into a folder, for the daemon.
func stickyManifests(t *testing.T, dir, timeout string) {
	t.Helper()
	const spec = "spec:\n  type: LoadBalancer\n"
	vmapdtest.EditDemo(t, dir, func(text string) string {
		return strings.Replace(text, spec, spec+"  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: "+timeout+"}}\n", 1)
	})
}

// Clients that go on connecting stay where they are while the daemon is killed and
// started again, and while the timeout changes.
func TestKillAndAnotherTimeoutKeepClientsWhereTheyAre(t *testing.T) {
	t.Parallel()
	w := labtest.New(t)
	dir := t.TempDir()
	stickyManifests(t, dir, "10800")
	args := []string{"--from", dir, "--hostname-override", lab.NodeName, "-v", "4"}
	daemon := vmapdtest.StartReady(t, w.Node, args...)

	var wait sync.WaitGroup
	stop := make(chan struct{})
	asked := make(chan int, 2*manyClients)
	for f, vip := range map[model.Family]string{model.IPv4: "172.30.0.10:80", model.IPv6: "[fd00:172:30::10]:80"} {
		for _, a := range clientAddrs(t, w, f, manyClients) {
			wait.Go(func() {
				pod, n := "", 0
				defer func() { asked <- n }()
				for {
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
					}
					ctx, cancel := context.WithTimeout(t.Context(), 2*vmapdtest.Patience)
					got, err := w.Client.AskFrom(ctx, a, "tcp", netip.MustParseAddrPort(vip))
					cancel()
					if err != nil {
						t.Error(err)
						return
					}
					if pod != "" && got.Pod != pod {
						t.Errorf("%v went from %s to %s", a, pod, got.Pod)
						return
					}
					pod = got.Pod
					n++
				}
			})
		}
	}
	moment := func() { time.Sleep(300 * time.Millisecond) } // for the clients to connect
	moment()
	for i, timeout := range []string{"60", "3600", "30", "86400", "10800"} {
		stickyManifests(t, dir, timeout)
		want := map[string]string{"60": "1m", "3600": "1h", "30": "30s", "86400": "1d", "10800": "3h"}[timeout]
		for deadline := time.Now().Add(10 * time.Second); strings.Count(vmapdtest.ListRuleset(t, w.Node), "timeout "+want+" :") < 2; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("timeout %s is not programmed:\n%s", timeout, daemon.Log)
			}
		}
		moment()
		if i%2 == 0 {
			daemon.Kill(t)
			moment()
			daemon = vmapdtest.StartReady(t, w.Node, args...)
			moment()
			if strings.Contains(daemon.Log.String(), "msg=applied") {
				t.Errorf("the restart sent a batch:\n%s", daemon.Log)
			}
		}
	}
	close(stop)
	wait.Wait()
	close(asked)
	total := 0
	for n := range asked {
		total += n
	}
	t.Logf("%d connections of %d clients", total, 2*manyClients)
	if strings.Contains(daemon.Log.String(), "level=ERROR") {
		t.Errorf("the daemon complains:\n%s", daemon.Log)
	}
}

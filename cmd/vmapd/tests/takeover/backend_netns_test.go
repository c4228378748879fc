package takeover

import (
	"context"
	"flag"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// switching starts one backend after the other, and checks that a client goes on being
// answered, and that only the last one has anything left on the node.
func switching(t *testing.T, maxLost int, backends ...string) {
	t.Helper()
	w := labtest.New(t)
	args := []string{"--from", vmapdtest.Demo(t), "--hostname-override", lab.NodeName}
	p := vmapdtest.StartReady(t, w.Node, append(args, "--backend="+backends[0])...)
	flow, err := w.Client.Dial(t.Context(), "udp", netip.MustParseAddrPort("172.30.0.10:80"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flow.Close() }()
	answered := func() bool {
		_, err := flow.Ask(t.Context())
		return err == nil
	}
	vmapdtest.WaitUntil(t, "a UDP flow is answered", answered)
	for _, next := range backends[1:] {
		// An emulated machine makes 80 connections a second, and programs nothing meanwhile.
		stop := lab.Load{Rate: 40, Timeout: 20 * time.Second, Ask: func(ctx context.Context) (lab.Answer, error) {
			return w.Client.Ask(ctx, "tcp4", vmapdtest.WebVIP)
		}}.Start()
		time.Sleep(200 * time.Millisecond) // the load is under way
		vmapdtest.Stop(t, p)
		p = vmapdtest.StartReady(t, w.Node, append(args, "--backend="+next)...)
		time.Sleep(200 * time.Millisecond)
		seen := stop()
		t.Logf("to %s: %v", next, &seen)
		if seen.Lost() > maxLost || seen.Sent == 0 {
			t.Errorf("the client noticed the switch to %s: %v\n%s", next, &seen, p.Log)
		}
		// One that goes on sending from the same port is heard by the new backend, too.
		vmapdtest.WaitUntil(t, "the UDP flow is answered after the switch to "+next, answered)
		has := leftByBackends(t, w)
		if _, ok := has[next]; !ok || len(has) != 1 {
			t.Errorf("after the switch to %s, these have something left: %v", next, has)
		}
	}
	vmapdtest.Stop(t, p)
	vmapdtest.Cleanup(t, w.Node)
	if has := leftByBackends(t, w); len(has) != 0 {
		t.Errorf("after cleanup, these have something left: %v", has)
	}
}

// From one backend to the other and back, a client never notices, and what the old one
// had is gone.
func TestSwitchingBackendsLosesNothingAndLeavesNothing(t *testing.T) {
	switching(t, 0, "nftables", "iptables", "nftables")
}

// The same with IPVS, in all directions. Connections that IPVS has translated end with its
// virtual servers: those that are under way at that moment.
func TestSwitchingToAndFromIPVS(t *testing.T) {
	vmapdtest.NeedIPVS(t)
	switching(t, 20, "nftables", "ipvs", "nftables", "iptables", "ipvs", "iptables", "nftables")
}

var wantBackend = flag.String("want-backend", "nftables", "what --backend=auto must come to on this kernel")

// Without being told, vmapd takes the first backend that the kernel has, says why, and
// connections are answered. make -C cmd/internal/testbed test-ipvs runs this on kernels that lack something.
func TestAutoTakesWhatTheKernelHas(t *testing.T) {
	w := labtest.New(t)
	p := vmapdtest.StartDemo(t, w.Node)
	because := map[string]string{
		"nftables": "has all required features", "ipvs": "lacks nf_tables", "iptables": "there is no IPVS",
	}[*wantBackend]
	if log := p.Log.String(); !strings.Contains(log, "backend="+*wantBackend+" ") || !strings.Contains(log, because) {
		t.Errorf("want the backend %s, because of %q, got:\n%s", *wantBackend, because, log)
	}
	for _, vip := range []string{"172.30.0.10:80", "[fd00:172:30::10]:80"} {
		if a, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(vip)); err != nil {
			t.Errorf("%s: %+v, %v", vip, a, err)
		}
	}
	vmapdtest.Stop(t, p)
}

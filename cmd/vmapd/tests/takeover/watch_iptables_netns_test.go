package takeover

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// Who flushes a table of iptables takes a jump of ours, which is looked for each second.
func TestWhatOthersDoToIPTablesIsPutBack(t *testing.T) {
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			vmapdtest.UseVariant(t, variant)
			w := labtest.New(t)
			p := vmapdtest.StartDemo(t, w.Node, "--backend=iptables", "--iptables-sync-period=1h")
			before := vmapdtest.RulesOf(t, w.Node)
			if !strings.Contains(before, "iptables-"+variant) {
				t.Fatalf("the rules are not in iptables-%s:\n%s", variant, before)
			}
			for _, harm := range []string{"iptables -t nat -F", "ip6tables -D FORWARD 1"} { // legacy/host has others
				words := strings.Fields(harm)
				vmapdtest.Feed(t, w.Node, "", words[0], words[1:]...)
				vmapdtest.WaitUntil(t, harm, func() bool {
					time.Sleep(100 * time.Millisecond) // four programs list the rules
					return vmapdtest.RulesOf(t, w.Node) == before
				})
			}
			for _, vip := range []string{"172.30.0.10:80", "[fd00:172:30::10]:80"} {
				if _, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(vip)); err != nil {
					t.Errorf("after all was put right: %v\n%s", err, p.Log)
				}
			}
			for _, want := range []string{"level=WARN msg=\"another program changed our rules",
				"level=INFO msg=\"rules changed by another program"} {
				if !strings.Contains(p.Log.String(), want) {
					t.Errorf("the log does not say %s:\n%s", want, p.Log)
				}
			}
			vmapdtest.Stop(t, p)
		})
	}
}

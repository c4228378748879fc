package scenarios

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

func loadByIPVS(t *testing.T, snapshot *model.Snapshot, node *lab.Namespace) {
	t.Helper()
	b := vmapdtest.OpenIPVS(t, node, slog.New(slog.DiscardHandler))
	if err := node.Do(func() error { return b.Apply(t.Context(), snapshot) }); err != nil {
		t.Fatal(err)
	}
}

// skipDifferences skips a flow about which IPVS is known to do otherwise.
func skipDifferences(t *testing.T, f flow, snapshot *model.Snapshot, nodeAddrs []netip.Addr) {
	t.Helper()
	d := model.Decide(snapshot, f.connection(nodeAddrs))
	for _, difference := range ipvs.Differences {
		if difference.Concerns(snapshot.Family(f.family()), d) {
			t.Skipf("IPVS does otherwise: %s", difference.What)
		}
	}
}

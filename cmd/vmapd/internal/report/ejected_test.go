package report

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
)

func TestEjected(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	at := netip.MustParseAddrPort("10.0.0.2:8080")
	of := &model.Ejections{
		Endpoints: []model.Ejection{{Endpoint: at, Node: "node-2", Since: now.Add(-5 * time.Second), Packets: 3, Clients: 1}},
		Nodes:     []model.Ejection{{Node: "node-3", Since: now.Add(-7 * time.Second)}},
	}
	other := netip.MustParseAddrPort("10.0.0.3:8080")
	for _, tt := range []struct {
		at        netip.AddrPort
		node      string
		now       time.Time
		want, why string
	}{
		{at, "node-2", now, "ejected by this node 5s ago: 3 packets of 1 client unanswered, probe timed out", "3 packets of 1 client unanswered, probe timed out"},
		{at, "", time.Time{}, "ejected by this node: 3 packets of 1 client unanswered, probe timed out", "3 packets of 1 client unanswered, probe timed out"},
		{other, "node-3", now, "ejected by this node 7s ago: endpoints of Node node-3 do not answer", "endpoints of Node node-3 do not answer"},
		{other, "", now, "ejected by this node: endpoints of its Node do not answer", ""},
		{other, "node-2", now, "ejected by this node: endpoints of its Node do not answer", ""},
	} {
		if got := Ejected(of, tt.at, tt.node, tt.now); got != tt.want {
			t.Errorf("%v on %q: %q, want %q", tt.at, tt.node, got, tt.want)
		}
		if got := Silence(of, tt.at, tt.node); got != tt.why {
			t.Errorf("%v on %q: %q, want %q", tt.at, tt.node, got, tt.why)
		}
	}
}

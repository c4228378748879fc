package kernel

import (
	"errors"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft"
)

// What needs no Backend works in the network namespace of its thread: counters are read, and tables removed, unless
// another process owns them.
func TestWithoutABackend(t *testing.T) {
	nettest.Enter(t)
	if err := RemoveTables(nft.TableName); err != nil {
		t.Errorf("without tables: %v", err)
	}
	s := exampleBuilder().Snapshot()
	b := openAs(t, Options{Counters: true})
	apply(t, b, s)
	ports := slices.Collect(s.Family(model.IPv4).ServicePorts())
	counts, err := ConnectionsTo(ports)
	if err != nil || len(counts) != len(ports) {
		t.Errorf("%d of %d service ports are counted: %v", len(counts), len(ports), err)
	}
	other := *ports[0]
	other.Frontends = []model.Frontend{{Kind: model.ClusterIP, VIP: model.VIP{Addr: other.Frontends[0].VIP.Addr, Protocol: model.TCP, Port: 9}}}
	if _, err := ConnectionsTo([]*model.ServicePort{&other}); err == nil {
		t.Error("no error about a service port that is not there")
	}
	if err := RemoveTables(nft.TableName); b.Owned() != errors.Is(err, ErrOwned) {
		t.Errorf("another process owns the tables (%v): %v", b.Owned(), err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTables(nft.TableName); err != nil {
		t.Errorf("with tables: %v", err)
	}
	if _, err := ConnectionsTo(ports); err == nil {
		t.Error("no error without tables")
	}
}

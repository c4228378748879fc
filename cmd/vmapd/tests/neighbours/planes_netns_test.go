package neighbours

import (
	"log/slog"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
)

// applier is a backend in a node's namespace.
type applier func(*model.Snapshot) error

type openPlane struct {
	name string
	open func(t *testing.T, node *lab.Namespace) applier
}

// planes are the backends that run beside other programs.
var planes = []openPlane{
	{"nftables", func(t *testing.T, node *lab.Namespace) applier {
		t.Helper()
		b := vmapdtest.OpenKernel(t, node, kernel.Options{})
		return func(s *model.Snapshot) error { return b.Apply(t.Context(), s) }
	}},
	{"iptables-legacy", openIPTables("-legacy")},
	{"iptables-nft", openIPTables("-nft")},
	{vmapdtest.ByIPVS, func(t *testing.T, node *lab.Namespace) applier {
		t.Helper()
		b := vmapdtest.OpenIPVS(t, node, slog.New(slog.DiscardHandler))
		return func(s *model.Snapshot) error { return node.Do(func() error { return b.Apply(t.Context(), s) }) }
	}},
}

func openIPTables(variant string) func(*testing.T, *lab.Namespace) applier {
	return func(t *testing.T, node *lab.Namespace) applier {
		t.Helper()
		var b *host.IPTables
		err := node.Do(func() (err error) {
			b, err = host.OpenIPTables(iptables.Options{}, slog.New(slog.DiscardHandler), variant)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return func(s *model.Snapshot) error { return node.Do(func() error { return b.Apply(t.Context(), s) }) }
	}
}

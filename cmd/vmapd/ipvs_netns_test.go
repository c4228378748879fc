package main

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/lab"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// byIPVS is the name of a program of scenarios.
const byIPVS = "by IPVS"

// missingIPVS says why there can be no IPVS backend here, nil if there can. It is asked
// before a world is built, in vain.
var missingIPVS = sync.OnceValue(func() error {
	ns, err := lab.NewNamespace("ipvs")
	if err != nil {
		return err
	}
	err = ns.Do(func() error {
		b, err := host.OpenIPVS(ipvs.Options{}, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return b.Close()
	})
	return errors.Join(err, ns.Close())
})

func needIPVS(t *testing.T) {
	t.Helper()
	err := missingIPVS()
	var unsupported *host.UnsupportedError
	if errors.As(err, &unsupported) && strings.HasPrefix(unsupported.Feature, "IPVS") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// openIPVS opens the backend in a node's namespace. To use it is to be there, too: it runs
// programs.
func openIPVS(t *testing.T, node *lab.Namespace, log *slog.Logger) *host.IPVS {
	t.Helper()
	var b *host.IPVS
	err := node.Do(func() (err error) {
		b, err = host.OpenIPVS(ipvs.Options{}, log)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func loadByIPVS(t *testing.T, _ string, snapshot *model.Snapshot, node *lab.Namespace) {
	t.Helper()
	b := openIPVS(t, node, slog.New(slog.DiscardHandler))
	if err := node.Do(func() error { return b.Apply(t.Context(), snapshot) }); err != nil {
		t.Fatal(err)
	}
}

// skipDifferences skips a flow about which IPVS is known to do otherwise.
func skipDifferences(t *testing.T, f flow, snapshot *model.Snapshot, nodeAddrs []netip.Addr) {
	t.Helper()
	d, _ := f.decide(snapshot, nodeAddrs)
	for _, difference := range ipvs.Differences {
		if difference.Concerns != nil && difference.Concerns(snapshot.Family(f.family()), d) {
			t.Skipf("IPVS does otherwise: %s", difference.What)
		}
	}
}

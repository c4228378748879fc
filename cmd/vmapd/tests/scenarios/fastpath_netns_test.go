package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/kernel"
)

const (
	byFastPath = "over netlink, with the fast path"
	// manyQuestions are so many that the last ones take the fast path.
	manyQuestions = nft.FastPathAfter
)

func loadWithFastPath(t *testing.T, snapshot *model.Snapshot, node *lab.Namespace) {
	t.Helper()
	backend := vmapdtest.OpenKernel(t, node, kernel.Options{FastPath: true})
	chosen := make(chan []string, 1)
	vmapdtest.FollowDevices(t, node, func(names []string) { chosen <- names })
	backend.SetDevices(<-chosen)
	if err := backend.Apply(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	t.Run("nft lists it", func(t *testing.T) {
		vmapdtest.NeedNFT(t)
		if got := vmapdtest.ListRuleset(t, node); !strings.Contains(got, "table ip vmapd {") || !strings.Contains(got,
			"table ip6 vmapd {") {
			t.Errorf("nft lists no tables, but:\n%s", got)
		}
	})
}

// askAgain asks several questions on one connection, whose answers must be the same.
func askAgain(ctx context.Context, from *lab.Namespace, source netip.Addr, network string, to netip.AddrPort,
	questions int,
) ask {
	c, err := from.DialFrom(ctx, netip.AddrPortFrom(source, 0), network, to)
	if err != nil {
		return ask{err: err}
	}
	defer func() { _ = c.Close() }()
	var last lab.Answer
	for i := range questions {
		a, err := c.Ask(ctx)
		if err != nil {
			return ask{err: err}
		}
		if i > 0 && a != last {
			return ask{err: fmt.Errorf("answer %d of the same connection is %+v, after %+v", i+1, a, last)}
		}
		last = a
	}
	return ask{answer: last}
}

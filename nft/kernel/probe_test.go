package kernel

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// What no kernel has stands in for what some lack.
func TestProbeNamesWhatIsMissing(t *testing.T) {
	n := newNetNS(t)
	c, err := thisKernel(n.fd()).dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.close() })
	for _, f := range model.Families {
		// The kernel's answer to an expression without module is ENOENT, too.
		uses := nft.InSet{Key: nft.Key{{Field: nft.DestAddr}}, Set: "teleport"}
		teleport := needs("nft_teleport (CONFIG_NFT_TELEPORT)", "9.9", nft.Prerouting, uses)
		_, err = c.probe(f, append(features(f), teleport))
		var missing *UnsupportedError
		if !errors.As(err, &missing) || !errors.Is(err, unix.ENOENT) {
			t.Fatalf("got %v, want an UnsupportedError", err)
		}
		for _, part := range []string{"nft_teleport", "since 9.9", f.String(), "--backend=ipvs"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
		// The connection is as good as before.
		if _, err := c.probe(f, features(f)); err != nil {
			t.Errorf("the next probe failed: %v", err)
		}
	}
	if listing := n.nft(t, "", "list", "ruleset"); listing != "" {
		t.Errorf("the probe left:\n%s", listing)
	}
}

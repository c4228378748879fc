package takeover

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/nettest"
)

// Without the right to administer the network, cleanup says so, in one line: it does not take
// the kernel's refusal for that of a table which another process owns.
func TestCleanupWithoutPermission(t *testing.T) {
	nettest.Need(t)
	vmapd := vmapdtest.Program(t)
	ns, err := lab.NewNamespace("node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	vmapdtest.Feed(t, ns, "table ip vmapd {}", "nft", "-f", "-") // nobody owns it
	for _, through := range []string{                            // programs that lower privileges, and execute the rest
		"setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+net_raw", "unshare --user --map-root-user",
	} {
		for _, flags := range [][]string{nil, {"--keep-kube-proxy"}} {
			args := slices.Concat(strings.Fields(through), []string{vmapd, "cleanup"}, flags)
			out, err := ns.Command(t.Context(), args[0], args[1:]...).CombinedOutput()
			if said := string(out); err == nil || !strings.Contains(said, "CAP_NET_ADMIN") ||
				strings.Contains(said, "another process") || strings.Count(said, "\n") != 1 {
				t.Errorf("%v: %v; it says %q, want one line about CAP_NET_ADMIN", args, err, said)
			}
			if got := vmapdtest.ListRuleset(t, ns); !strings.Contains(got, "table ip vmapd") {
				t.Errorf("%v removed the table", args)
			}
		}
	}
}

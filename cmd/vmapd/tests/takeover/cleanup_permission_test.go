package takeover

import (
	"os"
	"path/filepath"
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
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vmapd := filepath.Join(t.TempDir(), "vmapd")
	if err := os.Symlink(program, vmapd); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string // a program that lowers privileges, and executes the rest
	}{
		{"without the capability", []string{"setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all,+net_raw"}},
		{"with the capability of another user namespace", []string{"unshare", "--user", "--map-root-user"}},
	} {
		for _, flag := range []string{"", "--keep-kube-proxy"} {
			t.Run(tt.name+flag, func(t *testing.T) {
				ns, err := lab.NewNamespace("node")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = ns.Close() })
				vmapdtest.Feed(t, ns, "table ip vmapd {}", "nft", "-f", "-") // nobody owns it
				args := append(tt.args[1:len(tt.args):len(tt.args)], vmapd, "cleanup")
				if flag != "" {
					args = append(args, flag)
				}
				out, err := ns.Command(t.Context(), tt.args[0], args...).CombinedOutput()
				if err == nil {
					t.Errorf("cleanup exits with 0")
				}
				said := string(out)
				if !strings.Contains(said, "CAP_NET_ADMIN") || strings.Contains(said, "another process") || strings.Count(said, "\n") != 1 {
					t.Errorf("it says %q, want one line about CAP_NET_ADMIN", said)
				}
				if got := vmapdtest.ListRuleset(t, ns); !strings.Contains(got, "table ip vmapd") {
					t.Errorf("it removed the table")
				}
			})
		}
	}
}

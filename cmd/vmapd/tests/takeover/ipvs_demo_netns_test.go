package takeover

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// What render prints for IPVS, the programs that it names take, in its order.
func TestTheProgramsTakeWhatIsRenderedByIPVS(t *testing.T) {
	vmapdtest.NeedIPVS(t)
	w := labtest.New(t)
	takers := map[string][]string{
		"ipset restore": {"ipset", "restore"}, "ipvsadm -R": {"ipvsadm", "-R"},
		"iptables-restore": {"iptables-restore", "--noflush", "--test"}, "ip6tables-restore": {"ip6tables-restore", "--noflush", "--test"},
	}
	taken := 0
	for _, part := range strings.Split(rendered(t, "--backend=ipvs"), "# IPv")[1:] {
		label, text, _ := strings.Cut(part, "\n")
		args := takers[strings.TrimSpace(label[len("4: "):])]
		if args == nil {
			continue // sysctl, ip
		}
		vmapdtest.Feed(t, w.Node, text, args[0], args[1:]...)
		taken++
	}
	if want := 2 * 3; taken != want {
		t.Errorf("%d parts were tried, want %d", taken, want)
	}
}

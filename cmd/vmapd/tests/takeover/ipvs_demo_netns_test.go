package takeover

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// What render prints for IPVS, the programs that it names take, in its order.
func TestTheProgramsTakeWhatIsRenderedByIPVS(t *testing.T) {
	vmapdtest.NeedIPVS(t)
	w := labtest.New(t)
	var stdout, stderr bytes.Buffer
	if code := cli.Run(t.Context(), []string{"render", "-f", vmapdtest.Demo(t), "--backend=ipvs"}, nil, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	takers := map[string][]string{
		"ipset restore": {"ipset", "restore"}, "ipvsadm -R": {"ipvsadm", "-R"},
		"iptables-restore": {"iptables-restore", "--noflush", "--test"}, "ip6tables-restore": {"ip6tables-restore", "--noflush", "--test"},
	}
	taken := 0
	for _, part := range strings.Split(stdout.String(), "# IPv")[1:] {
		label, text, _ := strings.Cut(part, "\n")
		args := takers[strings.TrimSpace(label[len("4: "):])]
		if args == nil {
			continue // sysctl, ip
		}
		c := w.Node.Command(t.Context(), args[0], args[1:]...)
		c.Stdin = strings.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s\n%s", args, err, out, text)
		}
		taken++
	}
	if want := 2 * 3; taken != want {
		t.Errorf("%d parts were tried, want %d", taken, want)
	}
}

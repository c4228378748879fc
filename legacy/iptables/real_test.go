package iptables_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// The real programs accept our text, and list it as it was written.

// program is one of the four programs, as in "ip6tables-nft-restore".
type program struct {
	family  model.Family
	variant string
}

func (p program) String() string {
	if p.family == model.IPv6 {
		return "ip6tables-" + p.variant
	}
	return "iptables-" + p.variant
}

// inNamespace runs a shell script in a network namespace of its own, with a text on its
// standard input.
func inNamespace(script, text string) (string, error) {
	how := "-n"
	if os.Getuid() != 0 {
		how = "-rn"
	}
	cmd := exec.Command("unshare", how, "sh", "-ec", script)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// eachProgram runs a test with each program that works here.
func eachProgram(t *testing.T, test func(t *testing.T, p program)) {
	t.Helper()
	for _, variant := range []string{"legacy", "nft"} {
		for _, f := range model.Families {
			p := program{f, variant}
			t.Run(p.String(), func(t *testing.T) {
				if _, err := exec.LookPath("unshare"); err != nil {
					nettest.Missing(t, "unshare")
				}
				if _, err := exec.LookPath(p.String() + "-restore"); err != nil {
					nettest.Missing(t, p.String()+"-restore")
				}
				probe := "*nat\n-A OUTPUT -m statistic --mode random --probability 0.5 -j RETURN\nCOMMIT\n"
				if out, err := inNamespace(p.String()+"-restore", probe); err != nil {
					nettest.Missing(t, fmt.Sprintf("%v-restore: %v: %s", p, err, out))
				}
				test(t, p)
			})
		}
	}
}

// listed returns our chains and their rules in a text, each with its table, in the order of
// chains.
func listed(text string) []string {
	mask := regexp.MustCompile(` --mask [0-9a-f.:]+ --rsource`)
	var lines []string
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = name
		}
		if strings.HasPrefix(line, ":"+iptables.Prefix) || strings.HasPrefix(line, "-A "+iptables.Prefix) {
			line = strings.ReplaceAll(mask.ReplaceAllString(line, " --rsource"), `"`, "")
			lines = append(lines, table+" "+line)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int {
		chain := func(s string) string { return strings.Join(strings.Fields(strings.Replace(s, " -A", "", 1))[:2], " ") }
		return strings.Compare(chain(a), chain(b))
	})
	return lines
}

// many has what dualStack has not: affinity and lookup tables among many endpoints, node
// ports of each protocol, ranges of everybody.
func many(f model.Family) *model.FamilySnapshot {
	b := dualStack()
	modeltest.Feed(b, modeltest.Cluster(40, 2))
	modeltest.NewService("ns1/every").On("172.30.0.99", "fd00:172:30::63").
		LoadBalancer("192.168.98.13", "fd00:192:168:98::d").Ranges("0.0.0.0/0", "::/0").
		TCP("t", 80).NodePort(1).UDP("u", 80).NodePort(65535).
		Port(model.Port{Name: "s", Protocol: "SCTP", Port: 80, NodePort: 40000}).
		Sticky(86400).Set(b)
	modeltest.NewService("ns1/turn").On("172.30.0.98", "fd00:172:30::62").TCP("t", 80).Algorithm("maglev").Set(b)
	for _, service := range []string{"every", "turn"} {
		for _, slice := range []modeltest.Slice{
			modeltest.NewSlice("ns1/"+service+"-4", service), modeltest.NewSlice("ns1/"+service+"-6", service).IPv6(),
		} {
			slice = slice.TCP("t", 8080).UDP("u", 8080).Port("s", "SCTP", 8080)
			of := model.IPv4
			if slice.AddressType == "IPv6" {
				of = model.IPv6
			}
			for i := range 100 {
				slice = slice.Ready(modeltest.Pod(of, 1000+i).String())
			}
			slice.Set(b)
		}
	}
	return b.Snapshot().Family(f)
}

func TestTheProgramsListWhatWasWritten(t *testing.T) {
	eachProgram(t, func(t *testing.T, p program) {
		for _, o := range []iptables.Options{{RandomFully: true}, {}} {
			text := iptables.Compile(nil, many(p.family), o).String()
			if out, err := inNamespace(p.String()+"-restore --noflush --test", text); err != nil {
				t.Fatalf("--test: %v: %s", err, out)
			}
			saved, err := inNamespace(p.String()+"-restore --noflush; "+p.String()+"-save", text)
			if nettest.Rootless() && strings.Contains(saved, "Message too long") {
				t.Skip("without root, the socket takes no more than net.core.wmem_max in one transaction")
			}
			if err != nil {
				t.Fatalf("%v: %s", err, saved)
			}
			testaid.Equal(t, "what "+p.String()+"-save lists", listed(text), listed(saved))
			again, err := inNamespace(p.String()+"-restore; "+p.String()+"-save", saved)
			if err != nil {
				t.Fatalf("loading it again: %v: %s", err, again)
			}
			testaid.Equal(t, "what is listed after loading that", listed(saved), listed(again))
		}
	})
}

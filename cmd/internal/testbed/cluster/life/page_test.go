package life

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandsOfAPage(t *testing.T) {
	const page = "# Title\n\n## One\n\ntext\n\n```\nkubectl get nodes \\\n  -o wide\ncurl x  # why\n```\n\n" +
		"```yaml\nkind: List\n```\n\n## Two\n\n```console\n$ vmapd render\ntable ip vmapd\n```\n"
	want := Page{Blocks: []Block{
		{"One", "kubectl get nodes \\\n  -o wide\ncurl x  # why"},
		{"Two", "vmapd render"},
	}}
	p := ParsePage(page)
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"kubectl get nodes    -o wide", "curl x  # why"}, Lines(p.Blocks[0].Script)); diff != "" {
		t.Error(diff)
	}
	for _, wrong := range [][2]string{{"One", "nothing"}, {"Two", "kubectl"}, {"", "e"}} {
		if script, err := p.Find(wrong[0], wrong[1]); err == nil {
			t.Errorf("found %q in %q: %q", wrong[1], wrong[0], script)
		}
	}
}

func TestWordsToFillIn(t *testing.T) {
	got := FillIn("label node NODE NODES --from ADDRESS ADDRESS:PORT/tcp", map[string]string{
		"NODE": "n1", "ADDRESS": "192.0.2.1", "ADDRESS:PORT": "192.0.2.2:80",
	})
	if want := "label node n1 NODES --from 192.0.2.1 192.0.2.2:80/tcp"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}

// Each command of the page is run by a step, or its reason not to be is here.
func TestStepsRunTheCommandsOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../../../vmapd/deploy/FROM-KUBE-PROXY.md")
	if err != nil {
		t.Fatal(err)
	}
	page := ParsePage(string(text))
	seen := map[Block]string{}
	for _, used := range [][2]string{
		{"Before", "proxyMode"},
		{"Before", "vmapd explain -f cluster.yaml"},
		{"Before", "kube-proxy-before.yaml"},
		{"Way A", "OnDelete"},
		{"Way A", "RollingUpdate"},
		{"Way B", "from-kube-proxy.sed"},
		{"Way B", "kube-proxy-leaves.yaml"},
		{"Way B", "delete daemonset kube-proxy"},
		{"Check", "readyz"},
		{"Check", "explain --kubeconfig"},
		{"Back", "rollout undo"},
		{"Back", "NODE vmapd.io/proxy-"},
		{"Back", "delete daemonset vmapd"},
		{"Back", "cleanup.yaml"},
		{"Back", "-f my-vmapd.yaml"},
		// Not by a step:
		{"First", "preflight --kubeconfig"},   // preflight reads objects only: its own tests have them
		{"First", "differs/objects.yaml"},     // a test of the daemon runs it
		{"Way A", "jsonpath"},                 // for clusters whose kube-proxy is started by a shell
		{"Way A", `"image":"IMAGE"`},          // likewise
		{"Before", "--write-config-to"},       // a test of the daemon runs it
		{"Before", "testdata/demo/before"},    // likewise
		{"Back", "nft delete table ip vmapd"}, // instead of the cleanup for one node
		{"kubeadm upgrade", "kubeadm"},        // there is no kubeadm
	} {
		script, err := page.Find(used[0], used[1])
		if err != nil {
			t.Error(err)
		}
		for _, b := range page.Blocks {
			if b.Script == script {
				seen[b] = used[1]
			}
		}
	}
	for _, b := range page.Blocks {
		if seen[b] == "" {
			t.Errorf("section %q: no step runs\n%s", b.Section, b.Script)
		}
	}
}

package ipvs_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// The usual programs accept our text. ipvsadm is tested where the kernel has IPVS, in an emulated
// machine.

// inNamespace runs a script in a network namespace of its own, in a folder with files.
func inNamespace(t *testing.T, script string, files map[string]string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		testaid.Write(t, filepath.Join(dir, name), text)
	}
	cmd := exec.Command("unshare", "-rn", "sh", "-ec", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// need skips a test unless a script runs, and names what is missing.
func need(t *testing.T, what, script string) {
	t.Helper()
	if out, err := inNamespace(t, script, nil); err != nil {
		nettest.Missing(t, fmt.Sprintf("%s: %v: %s", what, err, out))
	}
}

// all returns objects of every kind.
func all() []modeltest.Object {
	local := modeltest.NewService("ns1/local").On("172.30.0.42", "fd00:172:30::2a").TCP("http", 80).NodePort(30001).
		LoadBalancer("192.168.98.11", "fd00:192:168:98::b").Policies("", "Local").Sticky(10800)
	return []modeltest.Object{
		modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16", "fd00:172:30::/112"),
		local,
		modeltest.NewSlice("ns1/local-1", "local").TCP("http", 8080).Local("10.0.0.2").Ready("10.0.0.3"),
		modeltest.NewSlice("ns1/local-2", "local").IPv6().TCP("http", 8080).Ready("fd00:10::3"),
		modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").External("192.168.99.11").TCP("http", 80).UDP("dns", 53).
			Port(model.Port{Name: "s", Protocol: "SCTP", Port: 99}).
			LoadBalancer("192.168.98.12", "fd00:192:168:98::c").Ranges("203.0.113.0/25", "0.0.0.0/0", "::/0").Algorithm("maglev"),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 53).Port("s", "SCTP", 99).Ready("10.0.0.4", "10.0.0.5"),
		modeltest.NewSlice("ns1/web-2", "web").IPv6().TCP("http", 8080).Local("fd00:10::4"),
		modeltest.NewService("ns2/none").On("172.30.0.43", "fd00:172:30::2b").TCP("http", 80).NodePort(30002),
	}
}

func TestTheProgramsTakeTheText(t *testing.T) {
	need(t, "ipset", "ipset create x hash:ip")
	for i, config := range configs {
		s := modeltest.Snapshot(config, all()...)
		for _, f := range model.Families {
			restore := "iptables"
			if f == model.IPv6 {
				restore = "ip6tables"
			}
			rules := ipvs.Compile(nil, s.Family(f), ipvs.Options{RandomFully: i%2 == 0}).Rules.String()
			files := map[string]string{
				"rules": rules,
				// This kernel has no IPVS: the program reads its match, and can't load it.
				"loadable": strings.NewReplacer("-m ipvs --ipvs ", "", "-m ipvs ! --ipvs ", "").Replace(rules),
			}
			sets := "" // of a type that each kernel has
			for _, name := range ipvs.SetNames {
				sets += "ipset create " + strings.Replace(name.Declaration(f), name.Type(), "hash:ip", 1) + "; "
			}
			for _, variant := range []string{"legacy", "nft"} {
				t.Run(fmt.Sprintf("config %d, %v, %s", i, f, variant), func(t *testing.T) {
					program := fmt.Sprintf("%s-%s-restore", restore, variant)
					need(t, program, program+" --version; echo '*mangle\nCOMMIT' | "+program)
					script := sets + "PROGRAM --noflush --test < rules; PROGRAM --noflush < loadable; PROGRAM --noflush < loadable"
					out, err := inNamespace(t, strings.ReplaceAll(script, "PROGRAM", program), files)
					if err != nil {
						t.Fatalf("%v: %s\n%s", err, out, rules)
					}
				})
			}
		}
	}
}

package diagnosis

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// Rules of another program that accept connections of Services are no failure. Where a policy is drop, there is a warning,
// and nothing says that they drop.
func TestDoctorAndTheRulesOfOthers(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.startReady(t)
	vmapdtest.Feed(t, p.Node, "", "nft", "-f", "testdata/firewall.nft")
	p.wantWarning(t, "warn firewall table inet firewall, chain forward (hook forward, priority 0), which is not vmapd's, may drop connections to Services: "+
		"its policy is drop, and 2 of its rules may drop or reject packets -> vmapd trace ADDRESS:PORT/PROTO shows whether a connection meets it; ",
		"ok firewall table inet firewall, chain early (hook prerouting, priority -300), which is not vmapd's, has 2 rules that may "+
			"drop or reject packets, which is usual; only vmapd trace ADDRESS:PORT/PROTO",
		"ok firewall table inet firewall, chain input (hook input, priority 0)")
}

// wantWarning checks that doctor warns with some texts and has no failure, and that connections work.
func (p *patient) wantWarning(t *testing.T, texts ...string) {
	t.Helper()
	output, exit := p.vmapd(t, "doctor")
	for _, want := range texts {
		if !strings.Contains(output, want) {
			t.Errorf("doctor does not say %q:\n%s", want, output)
		}
	}
	if exit != 0 || strings.Count(output, "warn ") != 1 {
		t.Errorf("exit code %d, want 0 and one warning:\n%s", exit, output)
	}
	for _, to := range []netip.AddrPort{vmapdtest.WebVIP, vmapdtest.WebNodePort} {
		p.Ask(t, to)
	}
}

// The formats for programs have the lines of a healthy node, and the metrics each finding. /readyz names the checks
// while the process is not ready, and no finding makes it unready.
func TestFindingsAreOnThePages(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.startReady(t)
	for format, read := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(b []byte, out any) error { return yaml.Unmarshal(b, out) },
	} {
		var got doctor.Report
		cmd := p.Node.Command(t.Context(), "/proc/self/exe", "doctor", "-o", format, "--socket", p.socket)
		cmd.Args[0] = "vmapd"
		out, err := cmd.Output()
		if err == nil {
			err = read(out, &got)
		}
		const off = 2 // the fast path, and bridges of pods: without them, there is no line
		if err != nil || got.Level != report.OK || len(got.Lines) != len(doctor.Checks())-off || got.Node != lab.NodeName {
			t.Errorf("%s: %v\n%s", format, err, out)
		}
	}
	if err := p.Node.Sysctl("net/ipv4/ip_forward", "0"); err != nil {
		t.Fatal(err)
	}
	vmapdtest.Eventually(t, func() string {
		const want = `vmapd_doctor_findings{check="forwarding",level="fail"} 1`
		if all := vmapdtest.Get(p.Node, vmapdtest.MetricsURL+"/metrics").Body; !strings.Contains(all, want) {
			return "no " + want
		}
		return ""
	})
	vmapdtest.WantStatus(t, p.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)

	unready := newPatient(t)
	unready.startReady(t, "--hostname-override", "elsewhere")
	vmapdtest.Eventually(t, func() string {
		page := vmapdtest.Get(unready.Client, vmapdtest.HealthURL+"/readyz")
		if page.Status != http.StatusServiceUnavailable || !strings.Contains(page.Body, "vmapd doctor has a finding: fail node\n") {
			return "/readyz says " + page.String()
		}
		return ""
	})
}

// Rules that somebody changed are found with each backend, and are not before. What is put back within a second
// is compared as the node is read: by TestCompare of nft/kernel, and TestCompareRules of legacy/host.
func TestDoctorFindsRulesThatSomebodyChanged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		backend, name, want string
		change              []string
	}{
		{"iptables", "a jump", "a jump is missing or in another place: ", []string{"iptables", "-t", "nat", "-I", "PREROUTING", "-j", "ACCEPT"}},
		{"ipvs", "a real server", "ipvsadm -a -t 172.30.0.10:80 -r 10.0.0.2:8080", []string{"ipvsadm", "-d", "-t", "172.30.0.10:80", "-r", "10.0.0.2:8080"}},
		{"ipvs", "rules", "iptables-restore --noflush", []string{"iptables", "-t", "nat", "-I", "POSTROUTING", "-j", "ACCEPT"}},
	} {
		t.Run(tt.backend+"/"+tt.name, func(t *testing.T) {
			if tt.backend == "ipvs" {
				vmapdtest.NeedIPVS(t)
			}
			t.Parallel()
			p := newPatient(t)
			p.startReady(t, "--backend", tt.backend, "--iptables-sync-period=1h", "--ipvs-sync-period=1h")
			p.wantHealthy(t)
			vmapdtest.Feed(t, p.Node, "", tt.change[0], tt.change[1:]...)
			if output, exit := p.vmapd(t, "doctor"); exit != 3 || !strings.Contains(output, "fail table the kernel's rules differ") || !strings.Contains(output, tt.want) {
				t.Errorf("exit code %d, want 3 and %q:\n%s", exit, tt.want, output)
			}
		})
	}
}

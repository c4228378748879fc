package diagnosis

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// The formats for programs have the lines of a healthy node. The daemon's report is the only one: status and the metric
// have each finding that doctor has, also of rules. None makes the process unready.
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
		const off = 3 // the fast path, bridges of pods, and listeners: without them, there is no line
		if err != nil || got.Level != report.OK || len(got.Lines) != len(doctor.Checks())-off || got.Node != lab.NodeName {
			t.Errorf("%s: %v\n%s", format, err, out)
		}
	}
	untrack(t, p, "iptables-nft")
	if err := p.Node.Sysctl("net/ipv4/ip_forward", "0"); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"doctor", "status"} { // the second one has the report of the first
		output, _ := p.vmapd(t, command)
		for _, want := range []string{"keeps packets from being tracked (NOTRACK)", "net.ipv4.ip_forward is 0"} {
			if !strings.Contains(output, want) {
				t.Errorf("%s does not say %q:\n%s", command, want, output)
			}
		}
	}
	metrics := vmapdtest.Get(p.Node, vmapdtest.MetricsURL+"/metrics").Body
	for check, level := range map[string]string{"firewall": "warn", "forwarding": "fail"} {
		if want := fmt.Sprintf("vmapd_doctor_findings{check=%q,level=%q} 1", check, level); !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	vmapdtest.WantStatus(t, p.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)
}

// A daemon that doctor is not pointed to is no other proxy, and its tables are no leftovers.
func TestDoctorKnowsADaemonAtAnotherSocket(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"another", "none"} {
		p := newPatient(t)
		args, fix := []string(nil), "a daemon answers at "+p.socket+": give --socket "+p.socket
		if at == "none" {
			args, fix = []string{"--socket", ""}, "a daemon runs here, as a process owns its tables"
		}
		p.startReady(t, args...)
		vmapdtest.Eventually(t, func() string {
			output, exit := p.vmapdAlone(t, "doctor", "--socket", p.socket+".wrong")
			if exit != 3 || !strings.Contains(output, fix) || strings.Contains(output, "other-proxies") ||
				strings.Contains(output, "start it") {
				return fmt.Sprintf("%s: exit code %d, want %q:\n%s", at, exit, fix, output)
			}
			return ""
		})
	}
	p := newPatient(t)
	own := filepath.Join(t.TempDir(), "vmapd.yaml")
	testaid.Write(t, own, "apiVersion: vmapd.io/v1alpha1\nkind: VmapdConfiguration\nsocket: "+p.socket+"\n")
	p.startReady(t)
	vmapdtest.Eventually(t, func() string {
		if output, exit := p.vmapdAlone(t, "doctor", "--vmapd-config", own); exit != 0 {
			return output
		}
		return ""
	})
}

// The backend userspace forwards no packets: what forwarding needs is no failure there.
func TestDoctorAndUserspace(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	if err := p.Node.Sysctl("net/ipv4/ip_forward", "0"); err != nil {
		t.Fatal(err)
	}
	p.startReady(t, "--backend", "userspace")
	p.Ask(t, vmapdtest.WebVIP)
	if output, exit := p.vmapd(t, "doctor"); exit != 0 {
		t.Errorf("exit code %d:\n%s", exit, output)
	}
}

// Rules that somebody changed are found with each backend, and are not before. What is put back within a second
// is compared as the node is read: by TestCompare of nft/kernel, and TestCompareRules of legacy/host.
func TestDoctorFindsRulesThatSomebodyChanged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		backend, name, want string
		change              []string
	}{
		{"iptables", "a jump", "a jump is missing or in another place: ", []string{
			"iptables", "-t", "nat", "-I",
			"PREROUTING", "-j", "ACCEPT",
		}},
		{"ipvs", "a real server", "ipvsadm -a -t 172.30.0.10:80 -r 10.0.0.2:8080", []string{
			"ipvsadm", "-d", "-t",
			"172.30.0.10:80", "-r", "10.0.0.2:8080",
		}},
		{"ipvs", "rules", "iptables-restore --noflush", []string{
			"iptables", "-t", "nat", "-I", "POSTROUTING", "-j",
			"ACCEPT",
		}},
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
			if output, exit := p.vmapd(t, "doctor"); exit != 3 || strings.Contains(output, "differs: ") ||
				!strings.Contains(output, "fail table the kernel's rules differ") || !strings.Contains(output, tt.want) {
				t.Errorf("exit code %d, want 3 and %q:\n%s", exit, tt.want, output)
			}
			if output, _ := p.vmapd(t, "doctor", "--all"); !strings.Contains(output, "differs: ") {
				t.Errorf("--all lists no difference:\n%s", output)
			}
		})
	}
}

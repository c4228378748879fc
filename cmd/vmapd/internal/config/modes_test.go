package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

// Which backend, why, and what follows from the mode: where node ports answer, whether all
// is masqueraded, and the two periods of the backend that is chosen.
func TestModes(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		in         files
		args       []string
	}{
		{"nothing", "auto; neither backend nor mode is set; primary; 30s 0s", files{}, nil},
		{"empty mode in a file", "auto; neither backend nor mode is set; primary; 30s 0s", files{proxy: "mode: ''\n"}, nil},
		{"nftables", "nftables; proxy.yaml: mode=nftables; primary; 30s 0s", files{proxy: "mode: nftables\n"}, nil},
		{"iptables", "iptables; proxy.yaml: mode=iptables; all localhost4; 30s 1s", files{proxy: "mode: iptables\n"}, nil},
		{"ipvs", "ipvs; proxy.yaml: mode=ipvs; all; 30s 0s", files{proxy: "mode: ipvs\n"}, nil},
		{"flag", "iptables; --proxy-mode=iptables; all localhost4; 30s 1s", files{}, []string{"--proxy-mode=iptables"}},
		{"our flag", "ipvs; --backend=ipvs; primary; 30s 0s", files{}, []string{"--backend=ipvs"}},
		{"our flag does not change what follows from the mode", "nftables; --backend=nftables; all localhost4; 30s 0s", files{proxy: "mode: iptables\n"}, []string{"--backend=nftables"}},
		{"our flag without a mode", "iptables; --backend=iptables; primary; 30s 0s", files{}, []string{"--backend=iptables"}},
		{"auto chooses nothing", "iptables; proxy.yaml: mode=iptables; all localhost4; 30s 1s", files{proxy: "mode: iptables\n", own: "backend: ipvs\n"}, []string{"--backend=auto"}},

		{"localhost that is not there", "iptables; proxy.yaml: mode=iptables; primary; 30s 1s", files{proxy: "mode: iptables\nnodePortAddresses: [primary]\n"}, nil},
		{"localhost in a range", "iptables; proxy.yaml: mode=iptables; 0.0.0.0/0 all6 localhost4; 30s 1s", files{proxy: "mode: iptables\nnodePortAddresses: [0.0.0.0/0]\n"}, nil},
		{"localhost of a family that the list lacks", "iptables; proxy.yaml: mode=iptables; ::/0 all4 localhost4; 30s 1s", files{proxy: "mode: iptables\nnodePortAddresses: ['::/0']\n"}, nil},
		{"localhost of a list for loopback", "iptables; proxy.yaml: mode=iptables; all6 localhost4; 30s 1s", files{proxy: "mode: iptables\nnodePortAddresses: [127.0.0.0/8]\n"}, nil},
		{"localhost, and its other addresses", "iptables; proxy.yaml: mode=iptables; 127.0.2.0/28 all6; 30s 1s", files{proxy: "mode: iptables\nnodePortAddresses: [127.0.2.0/28]\n"}, nil},
		{"localhost refused", "iptables; proxy.yaml: mode=iptables; primary; 30s 1s", files{proxy: "mode: iptables\nnodePortAddresses: [primary, 127.0.0.0/8]\niptables: {localhostNodePorts: false}\n"}, nil},
		{"localhost with nftables", "nftables; proxy.yaml: mode=nftables; primary localhost4 localhost6; 30s 0s", files{proxy: "mode: nftables\nnodePortAddresses: [primary, localhost]\n"}, nil},
		{"loopback of IPv6", "nftables; proxy.yaml: mode=nftables; all4 localhost6; 30s 0s", files{proxy: "mode: nftables\nnodePortAddresses: ['::1/128']\n"}, nil},
		{"IPv4-mapped loopback", "nftables; proxy.yaml: mode=nftables; all6 localhost4; 30s 0s", files{proxy: "mode: nftables\nnodePortAddresses: ['::ffff:127.0.0.0/104']\n"}, nil},
		{"mixture", "nftables; proxy.yaml: mode=nftables; all primary 192.168.0.0/24; 30s 0s", files{proxy: "mode: nftables\nnodePortAddresses: [all, 192.168.0.0/24, primary]\n"}, nil},

		{"masquerade, of iptables", "iptables; proxy.yaml: mode=iptables; all localhost4 masquerade; 30s 1s", files{proxy: "mode: iptables\niptables: {masqueradeAll: true}\n"}, nil},
		{"masquerade, of iptables for ipvs", "ipvs; proxy.yaml: mode=ipvs; all masquerade; 30s 0s", files{proxy: "mode: ipvs\niptables: {masqueradeAll: true}\n"}, nil},
		{"masquerade, of iptables with nftables", "nftables; proxy.yaml: mode=nftables; primary; 30s 0s", files{proxy: "mode: nftables\niptables: {masqueradeAll: true}\n"}, nil},
		{"masquerade, of nftables with iptables", "iptables; proxy.yaml: mode=iptables; all localhost4; 30s 1s", files{proxy: "mode: iptables\nnftables: {masqueradeAll: true}\n"}, nil},
		{"masquerade, as kube-proxy without a mode", "auto; neither backend nor mode is set; primary masquerade; 30s 0s", files{proxy: "iptables: {masqueradeAll: true}\n"}, nil},
		{"masquerade, by flag", "nftables; --proxy-mode=nftables; primary masquerade; 30s 0s", files{}, []string{"--masquerade-all", "--proxy-mode=nftables"}},

		{"periods of iptables", "iptables; proxy.yaml: mode=iptables; all localhost4; 10s 2s", files{proxy: "mode: iptables\niptables: {syncPeriod: 10s, minSyncPeriod: 2s}\nnftables: {syncPeriod: 99s, minSyncPeriod: 9s}\n"}, nil},
		{"periods of ipvs", "ipvs; proxy.yaml: mode=ipvs; all; 30s 3s", files{proxy: "mode: ipvs\nipvs: {minSyncPeriod: 3s}\niptables: {minSyncPeriod: 2s}\n"}, nil},
		{"periods by flag, with nftables", "nftables; --proxy-mode=nftables; primary; 20s 4s", files{}, []string{"--proxy-mode=nftables", "--iptables-sync-period=20s", "--iptables-min-sync-period=4s", "--ipvs-sync-period=1m"}},
		{"no pause by flag", "iptables; --proxy-mode=iptables; all localhost4; 30s 0s", files{}, []string{"--proxy-mode=iptables", "--iptables-min-sync-period=0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.in.mustLoad(t, tt.args...)
			got := fmt.Sprintf("%s; %s; %s; %gs %gs", c.Backend, c.BackendReason, traffic(c.Model()), c.SyncPeriod.Seconds(), c.MinSyncPeriod.Seconds())
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			// Only a mode that somebody wrote down, and that is slower, is worth an event.
			slower := strings.Contains(c.BackendReason, "mode=iptables") || strings.Contains(c.BackendReason, "mode=ipvs")
			if strings.Contains(notes(c), "WARN (event)") != slower {
				t.Errorf("got the notes\n%s", notes(c))
			}
		})
	}
}

func traffic(m model.Config) string {
	var s []string
	add := func(is bool, word string) {
		if is {
			s = append(s, word)
		}
	}
	add(m.NodePortAddresses.All, "all")
	add(m.NodePortAddresses.Primary, "primary")
	for _, p := range m.NodePortAddresses.CIDRs {
		s = append(s, p.String())
	}
	add(m.NodePortAddresses.Unlisted[model.IPv4], "all4")
	add(m.NodePortAddresses.Unlisted[model.IPv6], "all6")
	add(m.NodePortAddresses.Localhost[model.IPv4], "localhost4")
	add(m.NodePortAddresses.Localhost[model.IPv6], "localhost6")
	add(m.MasqueradeAll, "masquerade")
	return strings.Join(s, " ")
}

// A rule for each endpoint costs more than an element of a map.
func TestBudgetsDependOnTheBackend(t *testing.T) {
	legacy := model.Budgets{Ports: 1000, Endpoints: 5000, Entries: 8192, Problems: 10}
	for _, tt := range []struct {
		args []string
		want model.Budgets
	}{
		{nil, model.Budgets{}.WithDefaults()},
		{[]string{"--backend=ipvs"}, legacy},
		{[]string{"--backend=iptables"}, legacy},
		{[]string{"--proxy-mode=iptables"}, legacy},
	} {
		if diff := cmp.Diff(tt.want, (files{}).mustLoad(t, tt.args...).Model().Budgets); diff != "" {
			t.Errorf("%v: -want +got:\n%s", tt.args, diff)
		}
	}
}

// What only nftables has, other backends ignore, and say so.
func TestWhatABackendLacksIsSaid(t *testing.T) {
	for backend, ignored := range map[string]bool{"nftables": false, "auto": false, "iptables": true, "ipvs": true, "userspace": true} {
		got := notes(files{}.mustLoad(t, "--backend="+backend, "--fast-path=auto"))
		want := fmt.Sprintf("WARN --fast-path: ignored: the backend %s has no fast path\n", backend)
		if strings.Contains(got, want) != ignored {
			t.Errorf("got notes:\n%swant %v: %s", got, ignored, want)
		}
		if got := notes(files{}.mustLoad(t, "--backend="+backend)); strings.Contains(got, " ignored: the backend ") {
			t.Errorf("without the settings: %s", got)
		}
	}
}

// Nothing else says why a node port is refused there.
func TestLinkLocalAddressesOfNodePortsAreNamed(t *testing.T) {
	c := files{}.mustLoad(t, "--nodeport-addresses=fe80::/10,fe80::1/128,169.254.0.0/16,192.168.0.0/24,fd00::/8")
	want := "WARN --nodeport-addresses: fe80::/10: node ports do not answer on IPv6 link-local addresses\n" +
		"WARN --nodeport-addresses: fe80::1/128: node ports do not answer on IPv6 link-local addresses\n"
	if got := notes(c); !strings.Contains(got, want) || strings.Count(got, "link-local") != 2 {
		t.Errorf("got notes:\n%swant:\n%s", got, want)
	}
}

func TestAddressesOfServers(t *testing.T) {
	for _, tt := range []struct {
		name, healthz, metrics string
		in                     files
		args                   []string
	}{
		{"defaults", "0.0.0.0:10256", "127.0.0.1:10249", files{}, nil},
		{"IPv6", "[::]:10256", "[::1]:10249", files{}, []string{"--bind-address=::"}},
		{"without ports", "192.168.0.2:10256", "[fd00::1]:10249", files{}, []string{"--healthz-bind-address=192.168.0.2", "--metrics-bind-address=fd00::1"}},
		{"disabled", "", "", files{}, []string{"--healthz-bind-address=", "--metrics-bind-address="}},
		{"disabled by ports", "", "", files{}, []string{"--healthz-port=0", "--metrics-port=0"}},
		{"deprecated ports", "0.0.0.0:10256", "192.168.0.2:9999", files{}, []string{"--healthz-port=9998", "--metrics-port=9999", "--metrics-bind-address=192.168.0.2"}},
		{"empty in a file", "0.0.0.0:10256", "127.0.0.1:10249", files{proxy: "healthzBindAddress: ''\nmetricsBindAddress: ''\n"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.in.mustLoad(t, tt.args...)
			if c.KubeProxy.HealthzBindAddress != tt.healthz || c.KubeProxy.MetricsBindAddress != tt.metrics {
				t.Errorf("got %q, %q, want %q, %q", c.KubeProxy.HealthzBindAddress, c.KubeProxy.MetricsBindAddress, tt.healthz, tt.metrics)
			}
		})
	}
}

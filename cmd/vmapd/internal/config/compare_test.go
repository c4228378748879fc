package config_test

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
)

func TestCompare(t *testing.T) {
	const base = "mode: nftables\nclusterCIDR: 10.0.0.0/8\n"
	for _, tt := range []struct {
		name          string
		before, after files
		live, restart string
	}{
		{"nothing", files{proxy: base}, files{proxy: base}, "", ""},
		{"a default that is written down", files{proxy: base}, files{proxy: base + "oomScoreAdj: -999\nnodePortAddresses: []\n"}, "", ""},
		{"in place", files{proxy: base}, files{proxy: base + "nodePortAddresses: [all]\nconntrack: {min: 1}\nlogging: {verbosity: 4}\n"}, "logging.verbosity nodePortAddresses conntrack.min", ""},
		{"at the next start", files{proxy: base}, files{proxy: base + "hostnameOverride: x\nclientConnection: {qps: 9}\nlogging: {format: json}\n"}, "", "clientConnection.qps logging.format hostnameOverride"},
		{"both", files{proxy: base}, files{proxy: base + "ipvs: {scheduler: lc}\nenableProfiling: true\n"}, "enableProfiling", "ipvs.scheduler"},
		{"mode", files{proxy: "mode: ipvs\n"}, files{proxy: "mode: nftables\n"}, "", "mode"},
		{"what means nothing", files{proxy: base}, files{proxy: base + "portRange: 1-2\nnftables: {masqueradeBit: 3}\n"}, "", ""},
		{"gates", files{proxy: base}, files{proxy: base + "featureGates: {AllowServiceExternalIPs: false}\n"}, "featureGates", ""},
		{"ours", files{proxy: base, own: "backend: nftables\n"}, files{proxy: base, own: "lbAlgorithm: maglev\nmetricsTLS: {certFile: c, keyFile: k}\n"}, "lbAlgorithm metricsTLS.certFile metricsTLS.keyFile", "backend"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			live, restart := config.Compare(tt.before.mustLoad(t), tt.after.mustLoad(t))
			if got := strings.Join(live, " "); got != tt.live {
				t.Errorf("in place: got %q, want %q", got, tt.live)
			}
			if got := strings.Join(restart, " "); got != tt.restart {
				t.Errorf("at the next start: got %q, want %q", got, tt.restart)
			}
		})
	}
}

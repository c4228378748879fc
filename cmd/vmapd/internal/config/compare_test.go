package config_test

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
)

func TestCompare(t *testing.T) {
	const base = "mode: nftables\nclusterCIDR: 10.0.0.0/8\n"
	with := func(lines string) files { return files{proxy: base + lines} }
	for _, tt := range []struct {
		name          string
		before, after files
		want          string
	}{
		{"nothing", files{proxy: base}, files{proxy: base}, ""},
		{"a comment", files{proxy: base}, with("# nodePortAddresses: [all]\n"), ""},
		{"a default that is written down", files{proxy: base}, with("oomScoreAdj: -999\nnodePortAddresses: []\n"), ""},
		{"traffic", files{proxy: base}, with("nodePortAddresses: [all]\nconntrack: {min: 1}\n"), "nodePortAddresses conntrack.min"},
		{"the log", files{proxy: base}, with("logging: {verbosity: 4, format: json}\n"), "logging.format logging.verbosity"},
		{"the API server", files{proxy: base}, with("hostnameOverride: x\nclientConnection: {qps: 9}\n"), "clientConnection.qps hostnameOverride"},
		{"mode", files{proxy: "mode: ipvs\n"}, files{proxy: "mode: nftables\n"}, "mode"},
		{"what means nothing", files{proxy: base}, with("portRange: 1-2\nnftables: {masqueradeBit: 3}\n"), ""},
		{"gates", files{proxy: base}, with("featureGates: {AllowServiceExternalIPs: false}\n"), "featureGates"},
		{
			"ours",
			files{proxy: base, own: "backend: nftables\n"},
			files{proxy: base, own: "lbAlgorithm: maglev\nexternalAddresses: {allowServiceCIDRs: true, refuseNodeAddresses: true}\n"},
			"backend lbAlgorithm externalAddresses.allowServiceCIDRs externalAddresses.refuseNodeAddresses",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(config.Compare(tt.before.mustLoad(t), tt.after.mustLoad(t)), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

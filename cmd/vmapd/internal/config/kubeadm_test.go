package config_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// What kubeadm writes for kube-proxy must start, and say what is different here; so must what it
// writes for kind, whose nodes are containers.
func TestKubeadmClustersStart(t *testing.T) {
	paths, err := filepath.Glob("testdata/k*-*.yaml")
	if err != nil || len(paths) < 9 {
		t.Fatalf("found %q, %v", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text := testaid.Read(t, path)
			// kubeadm's command line, but for the folder.
			f := flags(t, "--config="+path, "--hostname-override=Node-1")
			c, err := config.Load(f)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("backend %s (%s)\nmodel %+v\nipvs %+v\nhealthz %s metrics %s\nconntrack %+v\nperiods %v %v\n\n%s",
				c.Backend, c.BackendReason, c.Model(), c.IPVS(), c.HealthzBindAddress, c.MetricsBindAddress, c.Conntrack,
				c.SyncPeriod, c.MinSyncPeriod, notes(c))
			got = strings.ReplaceAll(got, path, "config.conf")
			testaid.Golden(t, strings.TrimSuffix(path, ".yaml")+".golden", got)
			var generic map[string]any
			if err := yaml.Unmarshal([]byte(text), &generic); err != nil || generic["mode"] == nil {
				t.Errorf("not a file of kubeadm's: %v", err)
			}
		})
	}
}

// Each gate is named with what is the case here, whether it is known or not.
// The one gate that is honoured, and the settings about the same.
func TestExternalAddresses(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   files
		args []string
		want model.ExternalAddresses
	}{
		{"nothing", files{}, nil, model.ExternalAddresses{}},
		{"the gate", files{proxy: "featureGates: {AllowServiceExternalIPs: false}\n"}, nil, model.ExternalAddresses{NoExternalIPs: true}},
		{"the gate's default", files{proxy: "featureGates: {AllowServiceExternalIPs: true}\n"}, nil, model.ExternalAddresses{}},
		{"the gate's flag", files{}, []string{"--feature-gates=AllowServiceExternalIPs=false"}, model.ExternalAddresses{NoExternalIPs: true}},
		{
			"the file",
			files{own: "externalAddresses: {ipRanges: [192.168.99.0/24], allowServiceCIDRs: true, refuseNodeAddresses: true}\n"},
			nil,
			model.ExternalAddresses{Ranges: []netip.Prefix{netip.MustParsePrefix("192.168.99.0/24")}, InServiceCIDRs: true, NoNodeAddresses: true},
		},
		{
			"flags",
			files{own: "externalAddresses: {ipRanges: [192.168.99.0/24]}\n"},
			[]string{"--external-ip-ranges=fd00:99::/64", "--external-addresses-in-service-cidrs", "--refuse-node-addresses"},
			model.ExternalAddresses{Ranges: []netip.Prefix{netip.MustParsePrefix("fd00:99::/64")}, InServiceCIDRs: true, NoNodeAddresses: true},
		},
	} {
		got := tt.in.mustLoad(t, tt.args...).Model().ExternalAddresses
		if !reflect.DeepEqual(tt.want, got) {
			t.Errorf("%s: want %+v, got %+v", tt.name, tt.want, got)
		}
	}
}

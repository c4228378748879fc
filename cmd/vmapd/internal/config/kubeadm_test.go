package config_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

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
			// kubeadm's command line, but for the folder.
			f := flags(t, "--config="+path, "--hostname-override=Node-1")
			c, err := config.Load(f)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("backend %s (%s)\nmodel %+v\nipvs %+v\nhealthz %s metrics %s\nconntrack %s\nperiods %v %v\n\n%s",
				c.Backend, c.BackendReason, c.Model(), c.IPVS(), c.KubeProxy.HealthzBindAddress, c.KubeProxy.MetricsBindAddress, asJSON(c.KubeProxy.Conntrack),
				c.SyncPeriod, c.MinSyncPeriod, notes(c))
			got = strings.ReplaceAll(got, path, "config.conf")
			testaid.Golden(t, strings.TrimSuffix(path, ".yaml")+".golden", got)
		})
	}
}

// The gate that is honoured, and the settings about the same.
func TestExternalAddresses(t *testing.T) {
	ranges := func(list ...netip.Prefix) model.ExternalAddresses {
		return model.ExternalAddresses{Ranges: list, InServiceCIDRs: true, NoNodeAddresses: true}
	}
	for _, tt := range []struct {
		in   files
		args []string
		want model.ExternalAddresses
	}{
		{files{proxy: "featureGates: {AllowServiceExternalIPs: false}\n"}, nil, model.ExternalAddresses{NoExternalIPs: true}},
		{files{proxy: "featureGates: {AllowServiceExternalIPs: true}\n"}, nil, model.ExternalAddresses{}},
		{
			files{own: "externalAddresses: {ipRanges: [192.168.99.0/24], allowServiceCIDRs: true, refuseNodeAddresses: true}\n"},
			nil, ranges(netip.MustParsePrefix("192.168.99.0/24")),
		},
		{
			files{own: "externalAddresses: {ipRanges: [192.168.99.0/24]}\n"},
			[]string{"--external-ip-ranges=fd00:99::/64", "--external-addresses-in-service-cidrs", "--refuse-node-addresses"},
			ranges(netip.MustParsePrefix("fd00:99::/64")),
		},
	} {
		if got := tt.in.mustLoad(t, tt.args...).Model().ExternalAddresses; !reflect.DeepEqual(tt.want, got) {
			t.Errorf("%+v %q: want %+v, got %+v", tt.in, tt.args, tt.want, got)
		}
	}
}

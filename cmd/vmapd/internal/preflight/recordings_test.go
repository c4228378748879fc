package preflight

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/manifest"
)

const recordings = "../../../../testdata/kube-proxy"

// load reads a cluster and what a version of kube-proxy programmed for it.
func load(t *testing.T, recording, cluster string, args ...string) Input {
	t.Helper()
	objects, errs, err := manifest.Load([]string{filepath.Join(recordings, cluster, "objects.yaml")})
	if err != nil || len(errs) > 0 {
		t.Fatal(err, errs)
	}
	var flags config.Flags
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.AddTrafficFlags(set)
	if err := set.Parse(append([]string{"--config=" + filepath.Join(recordings, cluster, "config.conf")}, args...)); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(&flags)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{
		Objects: explain.Objects{
			Services: manifest.Of[model.Service](objects), EndpointSlices: manifest.Of[model.EndpointSlice](objects),
			Nodes: manifest.Of[model.Node](objects), ServiceCIDRs: manifest.Of[model.ServiceCIDR](objects),
		},
		Config: c.Model(), Backend: "nftables",
	}
	if c.Backend != config.Auto {
		in.Backend = string(c.Backend)
	}
	in.Config.NodeName = "node-1"
	for _, a := range []string{"192.168.0.2", "172.17.0.1", "fd00:192:168::2", "fd00:172:17::1"} {
		in.HostAddresses = append(in.HostAddresses, netip.MustParseAddr(a))
	}
	for _, f := range model.Families {
		in.Before[f] = readRecording(t, f, filepath.Join(recordings, recording, cluster))
	}
	return in
}

func readRecording(t *testing.T, f model.Family, path string) (r *Rules) {
	t.Helper()
	path += "." + strings.ToLower(f.String())
	text, err := os.ReadFile(path + ".nft")
	if err == nil {
		r, err = ReadNFT(f, string(text))
	} else if text, err = os.ReadFile(path + ".rules"); err == nil {
		r, err = ReadIPTables(f, string(text))
	}
	if err != nil || r == nil {
		t.Fatalf("%s: %v, %v", path, r, err)
	}
	return r
}

// versions returns the folders of all recordings of a mode.
func versions(t *testing.T, mode string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(recordings, "1.*-"+mode))
	if err != nil || len(list) == 0 {
		t.Fatalf("no recordings of mode %s: %v", mode, err)
	}
	for i := range list {
		list[i] = filepath.Base(list[i])
	}
	return list
}

func compare(t *testing.T, in Input) *Report {
	t.Helper()
	r, err := Compare(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Unread) > 0 || len(r.Stale) > 0 {
		t.Errorf("want all rules understood and up to date; got unread %q, stale %q", r.Unread, r.Stale)
	}
	return r
}

// services returns the Services by the findings' ids.
func services(list []Difference) map[string]string {
	m := map[string]string{}
	for _, d := range list {
		m[d.ID] = strings.TrimSpace(m[d.ID] + " " + strings.Join(d.Services, " "))
	}
	return m
}

func TestEveryDifferenceIsFound(t *testing.T) {
	const all = "shop/away shop/edge shop/front shop/guest shop/inside shop/web"
	fromBoth := map[string]string{"external-in-service-cidr": "shop/guest shop/inside"}
	fromIPTables := map[string]string{
		"external-in-service-cidr": "shop/guest shop/inside",
		"node-port-address":        "shop/away shop/edge shop/front",
		"node-port-loopback":       "shop/away shop/edge shop/front",
		"forward-policy":           all,
		"input-policy":             "shop/away shop/edge",
		"invalid-packets":          "",
		"packet-mark":              "",
	}
	notesFromIPTables := map[string]string{"unused-port": all, "unallocated-address": "", "ping": "", "mark-unused": "", "session-affinity": "shop/edge", "refusal": "shop/away"}
	for mode, want := range map[string][2]map[string]string{
		"iptables": {fromIPTables, notesFromIPTables},
		"nftables": {fromBoth, {"tables": "", "session-affinity": "shop/edge"}},
	} {
		for _, version := range versions(t, mode) {
			want := want
			if mode == "nftables" && version < "1.33" {
				want[0], want[1] = maps.Clone(want[0]), maps.Clone(want[1])
				want[0]["served"] = "shop/away"     // kube-proxy drops the node's own connections
				want[1]["unallocated-address"] = "" // it does not know the ServiceCIDRs
			}
			t.Run(version, func(t *testing.T) {
				r := compare(t, load(t, version, "differs"))
				if diff := cmp.Diff(want[0], services(r.Differences)); diff != "" {
					t.Errorf("differences (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(want[1], services(r.Notes)); diff != "" {
					t.Errorf("notes (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestNothingIsFoundWhereNothingDiffers(t *testing.T) {
	for _, mode := range []string{"iptables", "nftables"} {
		for _, version := range versions(t, mode) {
			t.Run(version, func(t *testing.T) {
				r := compare(t, load(t, version, "same"))
				if len(r.Differences) > 0 {
					t.Errorf("want no difference; got %+v", r.Differences)
				}
				if r.Connections < 100 || r.Services != 5 || len(r.KubeProxy.Families) != 2 {
					t.Errorf("want at least 100 connections to 5 Services in 2 families; got %d, %d, %d", r.Connections, r.Services, len(r.KubeProxy.Families))
				}
			})
		}
	}
}

// With these settings, vmapd does as kube-proxy does.
func TestSettingsKeepEverythingAsItWas(t *testing.T) {
	for _, version := range versions(t, "iptables") {
		t.Run(version, func(t *testing.T) {
			in := load(t, version, "differs", "--drop-invalid", "--external-addresses-in-service-cidrs")
			var err error
			if in.Config.NodePortAddresses, err = model.ParseNodePortAddresses([]string{"all", "127.0.0.0/8"}); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{ // those without a setting
				"forward-policy": "shop/away shop/edge shop/front shop/guest shop/inside shop/web",
				"input-policy":   "shop/away shop/edge",
				"packet-mark":    "",
			}
			if diff := cmp.Diff(want, services(compare(t, in).Differences)); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

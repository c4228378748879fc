package kube

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestManifestsOfProxies(t *testing.T) {
	c := connect(Config{Name: "x", Dir: "/x"})
	for proxy, want := range map[string][2]string{
		"vmapd":               {VmapdImage, "backend: nftables"},
		"vmapd:nftables":      {VmapdImage, "backend: nftables"},
		"vmapd:iptables":      {VmapdImage, "backend: iptables"},
		"kube-proxy":          {KubeProxyImage, `mode: "nftables"`},
		"kube-proxy:iptables": {KubeProxyImage, `mode: "iptables"`},
	} {
		p, err := ParseProxy(proxy)
		if err != nil {
			t.Fatal(err)
		}
		p.Deploy = "../../../../vmapd/deploy"
		manifest, err := c.Manifest(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range append(want[1:], "server: https://192.168.77.10:6443", "clusterCIDR: "+PodRanges, "maxPerCore: 0") {
			if !strings.Contains(manifest, want) {
				t.Errorf("%s: want %q, got:\n%s", proxy, want, manifest)
			}
		}
		if n := strings.Count(manifest, "image: "); n == 0 || n != strings.Count(manifest, "image: "+want[0]+"\n") {
			t.Errorf("%s: want the image %s, got:\n%s", proxy, want[0], manifest)
		}
	}
	for _, text := range []string{"", "cilium", "none", "vmapd:", "vmapd:ipvs", "kube-proxy:userspace"} {
		if p, err := ParseProxy(text); err == nil {
			t.Errorf("%q: want an error, got %v", text, p)
		}
	}
}

func TestAManifestThatIsNotFilledInIsAnError(t *testing.T) {
	dir := t.TempDir()
	const changed = "image: example.org/vmapd:latest\nserver: https://elsewhere.example:6443\nclusterCIDR: 10.244.0.0/16\n    kind: VmapdConfiguration\n"
	testaid.Write(t, dir+"/vmapd.yaml", changed)
	_, err := connect(Config{}).Manifest(Proxy{Program: Vmapd, Mode: "nftables", Deploy: dir})
	if want := "control-plane.example"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want an error about %s, got %v", want, err)
	}
}

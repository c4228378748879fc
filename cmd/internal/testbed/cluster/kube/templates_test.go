package kube

import (
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// documents returns the objects of a manifest.
func documents(t *testing.T, manifest string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096); ; {
		var one map[string]any
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, manifest)
		}
		if one != nil {
			all = append(all, one)
		}
	}
}

// at returns a field of an object.
func at(t *testing.T, object map[string]any, path ...string) any {
	t.Helper()
	var value any = object
	for _, key := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("%s of %v is no object", key, path)
		}
		value = fields[key]
	}
	return value
}

func TestTheCNIConfigurationHasARangePerFamily(t *testing.T) {
	text, err := fill("cni.conflist", map[string]any{
		"PodRanges": []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24"), netip.MustParsePrefix("fd00:244:0:3::/64")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Plugins []struct {
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	want := [][]struct{ Subnet string }{{{"10.244.3.0/24"}}, {{"fd00:244:0:3::/64"}}}
	if diff := cmp.Diff(want, got.Plugins[0].IPAM.Ranges); diff != "" {
		t.Errorf("ranges (-want +got):\n%s", diff)
	}
}

func TestKubeletIsToldItsNodesFiles(t *testing.T) {
	text, err := fill("kubelet.yaml", kubeletValues("/pki", "/nodes/n2", "/vmapd-x/n2", "n2"))
	if err != nil {
		t.Fatal(err)
	}
	conf := documents(t, text)[0]
	for field, want := range map[string]any{
		"tlsCertFile": "/pki/n2.crt", "tlsPrivateKeyFile": "/pki/n2.key", "cgroupRoot": "/vmapd-x/n2",
		"resolvConf": "/nodes/n2/resolv.conf", "failCgroupV1": false, "rotateCertificates": true,
	} {
		if got := conf[field]; want != got {
			t.Errorf("%s: want %v, got %v", field, want, got)
		}
	}
	if want, got := any("/pki/ca.crt"), at(t, conf, "authentication", "x509", "clientCAFile"); want != got {
		t.Errorf("clientCAFile: want %v, got %v", want, got)
	}
}

func TestATemplateWithoutAValueIsAnError(t *testing.T) {
	if text, err := fill("kubelet.yaml", map[string]string{}); err == nil {
		t.Errorf("want an error, got:\n%s", text)
	}
}

func TestManifestsOfProxies(t *testing.T) {
	for _, test := range []struct{ proxy, image, mode string }{
		{"vmapd", VmapdImage, "backend: nftables"},
		{"vmapd:nftables", VmapdImage, "backend: nftables"},
		{"vmapd:iptables", VmapdImage, "backend: iptables"},
		{"kube-proxy", KubeProxyImage, `mode: "nftables"`},
		{"kube-proxy:iptables", KubeProxyImage, `mode: "iptables"`},
	} {
		p, err := ParseProxy(test.proxy)
		if err != nil {
			t.Fatal(err)
		}
		p.Deploy = "../../../../vmapd/deploy"
		manifest, err := p.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		var images, configs []string
		for _, o := range documents(t, manifest) {
			switch o["kind"] {
			case "ConfigMap":
				for _, text := range at(t, o, "data").(map[string]any) {
					configs = append(configs, text.(string))
				}
			case "DaemonSet":
				for _, which := range []string{"initContainers", "containers"} {
					list, _ := at(t, o, "spec", "template", "spec", which).([]any)
					for _, c := range list {
						images = append(images, c.(map[string]any)["image"].(string))
					}
				}
			}
		}
		for _, got := range images {
			if want := test.image; want != got {
				t.Errorf("%s: want image %s, got %s", test.proxy, want, got)
			}
		}
		config := strings.Join(configs, "\n")
		for _, want := range []string{test.mode, "server: https://192.168.77.10:6443", "clusterCIDR: " + PodRanges} {
			if !strings.Contains(config, want) {
				t.Errorf("%s: want %q in the ConfigMap, got:\n%s", test.proxy, want, config)
			}
		}
	}
}

func TestAManifestThatIsNotFilledInIsAnError(t *testing.T) {
	const changed = "image: example.org/vmapd:latest\nserver: https://elsewhere.example:6443\nclusterCIDR: 10.244.0.0/16\n    kind: VmapdConfiguration\n"
	_, err := fillVmapd(changed, Proxy{Program: Vmapd, Mode: "nftables"})
	if want := "control-plane.example"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want an error about %s, got %v", want, err)
	}
}

func TestDNSHasTheAddressThatKubeletTells(t *testing.T) {
	text, err := dnsManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range documents(t, text) {
		if o["kind"] == "Service" {
			if want, got := any(DNSAddress), at(t, o, "spec", "clusterIP"); want != got {
				t.Errorf("want %v, got %v", want, got)
			}
			return
		}
	}
	t.Error("there is no Service")
}

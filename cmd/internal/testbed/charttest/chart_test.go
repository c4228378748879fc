// Package charttest renders the Helm chart and the base of kustomize by their own libraries. It is a module of its
// own: these libraries are large, and vmapd needs neither.
package charttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const deploy = "../../../vmapd/deploy"

// minimal are values with what the manifest has, where the chart has no default.
const minimal = `
image: {repository: example.org/vmapd, tag: latest}
apiServer: https://control-plane.example:6443
config: {clusterCIDR: 10.244.0.0/16}
`

// load reads the chart once: each time, Helm tells of the symbolic links to the files of monitoring.
var load = sync.OnceValues(func() (*chartv2.Chart, error) { return loader.LoadDir(filepath.Join(deploy, "chart")) })

// render returns the chart's objects and its notes, as "helm template" and "helm install" make them.
func render(t *testing.T, values string) (objects, string, error) {
	t.Helper()
	chart, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	release := common.ReleaseOptions{Name: "vmapd", Namespace: "kube-system", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, given, release, nil)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, "", err
	}
	made, notes := objects{}, ""
	for name, text := range files {
		switch filepath.Ext(name) {
		case ".txt":
			notes = text
		case ".yaml":
			for key, object := range parse(t, text) {
				if made[key] != nil {
					t.Errorf("%s is there twice", key)
				}
				made[key] = object
			}
		}
	}
	return made, notes, nil
}

// daemonSet reads an object as strictly as the API server does: a field that no DaemonSet has is an error. The order
// of volumes means nothing, so they are sorted.
func daemonSet(t *testing.T, object map[string]any) *appsv1.DaemonSet {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	ds := &appsv1.DaemonSet{}
	if err := in.Decode(ds); err != nil {
		t.Fatal(err)
	}
	spec := &ds.Spec.Template.Spec
	slices.SortFunc(spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		slices.SortFunc(c.VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
	}
	return ds
}

func TestTheChartMakesTheObjectsOfTheManifest(t *testing.T) {
	got, notes, err := render(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, manifest(t, "vmapd.yaml"), got)
	for _, want := range []string{"rollout status daemonset/vmapd", "vmapd doctor", "OtherProxy", "on loopback", "helm uninstall"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes have no %q:\n%s", want, notes)
		}
	}
}

// The options of the chart are the changes that the other files of the folder make.
func TestOptionsMakeTheChangesOfTheOtherFiles(t *testing.T) {
	for name, c := range map[string]struct {
		values string
		want   func(*testing.T, objects)
	}{
		"legacy": {
			"legacy: true",
			func(t *testing.T, o objects) { patch(t, o, "legacy.yaml") },
		},
		"labelledNodesOnly": {
			"labelledNodesOnly: true",
			func(_ *testing.T, o objects) {
				at(o, "DaemonSet vmapd", "spec", "template", "spec", "nodeSelector")["vmapd.io/proxy"] = "vmapd"
			},
		},
		"podMonitor": {
			"podMonitor: {enabled: true}",
			func(t *testing.T, o objects) {
				o["PodMonitor vmapd"] = manifest(t, "monitoring/podmonitor.yaml")["PodMonitor vmapd"]
			},
		},
		"prometheusRules": {
			"prometheusRules: {enabled: true}",
			func(t *testing.T, o objects) {
				maps.Copy(o, manifest(t, "monitoring/prometheusrules.yaml"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := render(t, merged(t, minimal, c.values))
			if err != nil {
				t.Fatal(err)
			}
			plain, want := manifest(t, "vmapd.yaml"), manifest(t, "vmapd.yaml")
			c.want(t, want)
			if cmp.Equal(plain, want) {
				t.Fatal("the option changes nothing")
			}
			compare(t, want, got)
		})
	}
}

// With the value cleanup, what removes the rules takes the daemon's place, by the image and with the credentials of the daemon.
func TestCleanupTakesTheDaemonsPlace(t *testing.T) {
	for value, args := range map[string][]string{"keep-kube-proxy": {"cleanup", "--keep-kube-proxy"}, "everything": {"cleanup"}} {
		got, notes, err := render(t, merged(t, minimal, "cleanup: "+value+"\nimagePullSecrets: [{name: registry}]"))
		if err != nil {
			t.Fatal(err)
		}
		want := manifest(t, "vmapd.yaml")
		delete(want, "DaemonSet vmapd")
		maps.Copy(want, manifest(t, "cleanup.yaml"))
		pod := at(want, "DaemonSet vmapd-cleanup", "spec", "template", "spec")
		pod["imagePullSecrets"] = []any{map[string]any{"name": "registry"}}
		pod["initContainers"].([]any)[0].(map[string]any)["args"] = args
		compare(t, want, got)
		if !strings.Contains(notes, "daemonset/vmapd-cleanup") || strings.Contains(notes, "OtherProxy") {
			t.Errorf("cleanup: %s has the notes\n%s", value, notes)
		}
	}
}

// Another setting is another ConfigMap, and another pod: the rolling update brings it to the nodes. The former
// ConfigMap stays for the nodes that are not updated yet.
func TestAChangedSettingIsAnotherConfigMap(t *testing.T) {
	names := map[string]bool{}
	for _, values := range []string{"", "config: {clusterCIDR: 10.245.0.0/16}", "vmapdConfig: {lbAlgorithm: maglev}", "maxUnavailable: 1"} {
		got, _, err := render(t, merged(t, minimal, values))
		if err != nil {
			t.Fatal(err)
		}
		for key, object := range got {
			name, is := strings.CutPrefix(key, "ConfigMap ")
			if !is {
				continue
			}
			names[name] = true
			volumes := daemonSet(t, got["DaemonSet vmapd"]).Spec.Template.Spec.Volumes
			if !slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name == name }) {
				t.Errorf("%s: the DaemonSet does not use it: %v", name, volumes)
			}
			if object["immutable"] != true || at(got, key, "metadata", "annotations")["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s: %v", name, object)
			}
		}
	}
	if len(names) != 3 {
		t.Errorf("ConfigMaps %v, want one for each configuration", names)
	}
}

// The probes are where the daemon answers, and the PodMonitor's port is where it has its metrics.
func TestProbesFollowTheConfiguredAddresses(t *testing.T) {
	for address, want := range map[string]string{
		`""`: "healthz=10256 metrics=10249", "0.0.0.0": "healthz=10256 metrics=10249", `"::"`: "healthz=10256 metrics=10249",
		"0.0.0.0:10300": "healthz=10300 metrics=10249", `"[::]:10300"`: "healthz=10300 metrics=10249",
		"127.0.0.1:10300": "127.0.0.1 healthz=10300 metrics=10249", `"[::1]:10300"`: "::1 healthz=10300 metrics=10249",
		"127.0.0.1": "127.0.0.1 healthz=10256 metrics=10249", `"::1"`: "::1 healthz=10256 metrics=10249",
		"0.0.0.0:1\n  metricsBindAddress: 0.0.0.0:9": "healthz=1 metrics=9",
	} {
		got, _, err := render(t, merged(t, minimal, "config:\n  healthzBindAddress: "+address))
		if err != nil {
			t.Fatal(err)
		}
		c := daemonSet(t, got["DaemonSet vmapd"]).Spec.Template.Spec.Containers[0]
		text := c.ReadinessProbe.HTTPGet.Host
		for _, p := range c.Ports {
			text += fmt.Sprintf(" %s=%d", p.Name, p.ContainerPort)
		}
		if text = strings.TrimSpace(text); text != want || c.LivenessProbe.HTTPGet.Host != c.ReadinessProbe.HTTPGet.Host {
			t.Errorf("healthzBindAddress %s: %s, want %s", address, text, want)
		}
		for path, get := range map[string]*corev1.HTTPGetAction{"/livez": c.LivenessProbe.HTTPGet, "/readyz": c.ReadinessProbe.HTTPGet} {
			if get.Path != path || get.Port.String() != "healthz" {
				t.Errorf("healthzBindAddress %s: %v", address, get)
			}
		}
	}
}

func TestTheChartTakesKubeProxysConfigMapAsTheManifestDoes(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "sed", "-f", filepath.Join(deploy, "from-kube-proxy.sed"), filepath.Join(deploy, "vmapd.yaml")).Output()
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := render(t, "image: {repository: example.org/vmapd, tag: latest}\nkubeProxyConfigMap: kube-proxy\n")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, parse(t, string(out)), got)
}

// Errors come before anything is installed, and name the value.
func TestWrongValuesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		values string // beside minimal
		want   string
	}{
		"unknown key":               {"imagePullSecret: x", `imagePullSecret`},
		"unknown key of an image":   {"image: {repositry: x}", `repositry`},
		"unknown field of a config": {"config: {clusterCidr: 10.0.0.0/8}", `clusterCidr`},
		"unknown own field":         {"vmapdConfig: {lbAlgorithms: random}", `lbAlgorithms`},
		"wrong type":                {"config: {conntrack: {maxPerCore: many}}", `/config/conntrack/maxPerCore`},
		"wrong type of an option":   {"legacy: maybe", `/legacy`},
		"number for a text":         {"image: {tag: 1.2}", `/image/tag`},
		"an address without scheme": {"apiServer: 192.0.2.1:6443", `/apiServer`},
		"no nodes at a time":        {"maxUnavailable: 0", `/maxUnavailable`},
		"cleanup of what":           {"cleanup: true", `/cleanup`},
		"the chart's own field":     {"config: {clientConnection: {kubeconfig: /x}}", `kubeconfig`},
		"no image":                  {`image: {repository: ""}`, "image.repository is required"},
		"no API server":             {`apiServer: ""`, "apiServer is required"},
		"no ranges":                 {`config: {clusterCIDR: ""}`, "config.clusterCIDR is required"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := render(t, merged(t, minimal, c.values))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want an error with %q, got: %v", c.want, err)
			}
			t.Log(err)
		})
	}
}

// The chart and the program have one version: the newest of the changelog. Without a tag, the image is that of the version.
func TestTheChartHasTheNewestVersion(t *testing.T) {
	text, err := os.ReadFile("../../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+(?:-dev)?)$`).FindSubmatch(text)
	if newest == nil {
		t.Fatal("the changelog has no version")
	}
	chart, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if got := chart.Metadata; got.Version != string(newest[1]) || got.AppVersion != "v"+got.Version {
		t.Errorf("version %s, appVersion %s; the changelog's newest is %s", got.Version, got.AppVersion, newest[1])
	}
	got, _, err := render(t, merged(t, minimal, `image: {tag: ""}`))
	if err != nil {
		t.Fatal(err)
	}
	if image := daemonSet(t, got["DaemonSet vmapd"]).Spec.Template.Spec.Containers[0].Image; image != "example.org/vmapd:v"+string(newest[1]) {
		t.Errorf("the image is %s", image)
	}
}

// yamlBlock is a file on a page: its first line is its name.
var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n# (\\S+)\n(.*?)^```$")

// block returns a file that a page shows.
func block(t *testing.T, page, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
		if m[1] == name {
			return m[2]
		}
	}
	t.Fatalf("%s has no %s", page, name)
	return ""
}

// Values that the pages show are accepted, and do what the pages say.
func TestValuesOfPages(t *testing.T) {
	for page := range map[string]bool{"install.md": true, "platforms.md": true} {
		text, err := os.ReadFile(filepath.Join(deploy, "../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "```yaml\n"); n != len(yamlBlock.FindAllString(string(text), -1)) {
			t.Errorf("%s: a block has no file name in its first line", page)
		}
	}
	for page, files := range map[string]map[string]int{
		"install.md": {
			"values.yaml": 5, "values-imported.yaml": 5, "values-beside-kube-proxy.yaml": 5, "values-monitoring.yaml": 9,
		},
		"platforms.md": {
			"values-k3s.yaml": 5, "values-rke2.yaml": 5, "values-talos.yaml": 5, "values-eks.yaml": 5, "values-kind.yaml": 5,
		},
	} {
		for file, want := range files {
			t.Run(file, func(t *testing.T) {
				got, notes, err := render(t, merged(t, `image: {repository: example.org/vmapd, tag: "1.0"}`, block(t, page, file)))
				if err != nil {
					t.Fatal(err)
				}
				if len(got) != want {
					t.Errorf("%d objects, want %d", len(got), want)
				}
				spec := daemonSet(t, got["DaemonSet vmapd"]).Spec.Template.Spec
				image := "example.org/vmapd:1.0"
				if digest := regexp.MustCompile(`sha256:\w+`).FindString(block(t, page, file)); digest != "" {
					image = "registry.example/vmapd@" + digest
				}
				for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
					if c.Image != image {
						t.Errorf("%s: image %s", c.Name, c.Image)
					}
				}
				if strings.Contains(notes, "WARNING") {
					t.Errorf("notes:\n%s", notes)
				}
			})
		}
	}
}

package takeover

import (
	"log/slog"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// credentialsPath is where the kubelet puts a ServiceAccount's token and the cluster's
// authority.
const credentialsPath = "/var/run/secrets/kubernetes.io/serviceaccount/"

// What is applied to a cluster must fit together: nothing here is checked by anybody
// before the pods fail.
func TestManifestsFitTogether(t *testing.T) {
	objects := vmapdtest.ReadDeployed(t, "vmapd.yaml")
	ds := vmapdtest.Object[appsv1.DaemonSet](t, objects, "DaemonSet vmapd")
	binding := vmapdtest.Object[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding vmapd")
	want := []rbacv1.Subject{{
		Kind: "ServiceAccount", Name: ds.Spec.Template.Spec.ServiceAccountName,
		Namespace: ds.Namespace,
	}}
	testaid.Equal(t, "subjects of the binding", want, binding.Subjects)
	vmapdtest.Object[corev1.ServiceAccount](t, objects, "ServiceAccount "+ds.Spec.Template.Spec.ServiceAccountName)
	vmapdtest.Object[rbacv1.ClusterRole](t, objects, binding.RoleRef.Kind+" "+binding.RoleRef.Name)
	if len(objects) != 5 {
		t.Errorf("%d objects in vmapd.yaml: is each of them checked?", len(objects))
	}
	files := vmapdtest.Object[corev1.ConfigMap](t, objects, "ConfigMap vmapd")
	t.Run("vmapd", func(t *testing.T) { checkDaemon(t, ds, files) })
	t.Run("kube-rbac-proxy", func(t *testing.T) {
		checkBesideIt(t, ds, patched(t, ds,
			"monitoring/kube-rbac-proxy.yaml"))
	})
	t.Run("legacy", func(t *testing.T) {
		legacy := patched(t, ds, "legacy.yaml")
		checkDaemon(t, legacy, files)
		pod := legacy.Spec.Template.Spec
		main := pod.Containers[0]
		if s := main.SecurityContext; !*s.Privileged || s.Capabilities != nil || s.SeccompProfile != nil ||
			!*s.ReadOnlyRootFilesystem {
			t.Errorf("security context: %+v", s)
		}
		if len(main.VolumeMounts) != 4 || len(pod.InitContainers[0].VolumeMounts) != 3 || len(pod.Volumes) != 4 {
			t.Errorf("mounts %v, of the init container %v, volumes %v", main.VolumeMounts, pod.InitContainers[0].VolumeMounts,
				pod.Volumes)
		}
	})
	t.Run("cleanup", func(t *testing.T) {
		clean := vmapdtest.ReadDeployed(t, "cleanup.yaml")
		ds := vmapdtest.Object[appsv1.DaemonSet](t, clean, "DaemonSet vmapd-cleanup")
		checkPods(t, ds)
		for name, c := range map[string]corev1.Container{
			"cleanup": ds.Spec.Template.Spec.InitContainers[0],
			"wait":    ds.Spec.Template.Spec.Containers[0],
		} {
			// The image has no program but vmapd.
			command, rest, err := cli.Command().Find(c.Args)
			if err == nil {
				err = command.ParseFlags(rest)
			}
			if err != nil || command.Name() != name || len(c.Command) > 0 || len(clean) != 1 {
				t.Errorf("%v %v: command %s, %v", c.Command, c.Args, command.Name(), err)
			}
		}
	})
}

// checkPods checks what all our DaemonSets have in common.
func checkPods(t *testing.T, ds *appsv1.DaemonSet) {
	t.Helper()
	spec := ds.Spec.Template.Spec
	if diff := cmp.Diff(ds.Spec.Selector.MatchLabels, ds.Spec.Template.Labels); diff != "" ||
		len(ds.Spec.Selector.MatchLabels) == 0 {
		t.Errorf("selector (-) and labels of pods (+):\n%s", diff)
	}
	if !spec.HostNetwork || spec.PriorityClassName != "system-node-critical" || len(spec.Tolerations) != 1 ||
		spec.Tolerations[0].Key != "" {
		t.Error("the pods are not on each node's network, first of all, whatever its taints")
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s mounts volume %s, which is not there", c.Name, m.Name)
			}
		}
		s := c.SecurityContext
		switch privileged := s.Privileged != nil && *s.Privileged; {
		case privileged && s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation:
			t.Errorf("%s: the API server takes no privileged container without privilege escalation", c.Name)
		case !privileged && (*s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop,
			[]corev1.Capability{"ALL"})):
			t.Errorf("%s has more privileges than it needs: %+v", c.Name, s)
		}
	}
	for _, v := range spec.Volumes {
		if !slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
		}) {
			t.Errorf("nobody mounts volume %s", v.Name)
		}
	}
}

// checkBesideIt checks the container of kube-rbac-proxy: it changes nothing of vmapd's, reads its metrics where vmapd
// serves them by default, and finds its kubeconfig.
func checkBesideIt(t *testing.T, before, after *appsv1.DaemonSet) {
	t.Helper()
	checkPods(t, after)
	pod := &after.Spec.Template.Spec
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "kube-rbac-proxy" })
	beside := pod.Containers[i]
	pod.Containers = slices.Delete(pod.Containers, i, i+1)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("besides the new container, it changes (-before +after):\n%s", diff)
	}
	_, conf := load(t, &corev1.Container{Name: "without arguments"}, func(arg string) string { return arg })
	for _, want := range []string{
		"--upstream=http://" + conf.KubeProxy.MetricsBindAddress + "/",
		"--secure-listen-address=[$(HOST_IP)]:" + strings.TrimPrefix(conf.KubeProxy.MetricsBindAddress, "127.0.0.1:"),
		"--kubeconfig=" + beside.VolumeMounts[0].MountPath + "/kubeconfig.conf",
	} {
		if !slices.Contains(beside.Args, want) {
			t.Errorf("the arguments %q lack %s", beside.Args, want)
		}
	}
	if beside.VolumeMounts[0].Name != before.Spec.Template.Spec.Containers[0].VolumeMounts[0].Name ||
		beside.Env[0].Name != "HOST_IP" {
		t.Errorf("mounts %v, environment %v", beside.VolumeMounts, beside.Env)
	}
}

// checkDaemon checks that both containers start with the files of the ConfigMap.
func checkDaemon(t *testing.T, ds *appsv1.DaemonSet, files *corev1.ConfigMap) {
	t.Helper()
	checkPods(t, ds)
	spec := ds.Spec.Template.Spec
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		dir := t.TempDir()
		mounted := mount(t, &spec, &c, files, dir)
		flags, conf := load(t, &c, func(arg string) string { return strings.ReplaceAll(arg, mounted, dir) })
		for _, n := range conf.Notes {
			if n.Level > slog.LevelInfo {
				t.Errorf("%s: %s", c.Name, n.Text)
			}
		}
		if flags.InitOnly != (c.Name == "node-setup") || conf.Model().NodeName != lab.NodeName ||
			conf.Backend != config.Auto {
			t.Errorf("%s: --init-only %v, node %q, backend %s", c.Name, flags.InitOnly, conf.Model().NodeName, conf.Backend)
		}
	}
}

// In a DaemonSet of its own, vmapd uses kube-proxy's ConfigMap as it is: the daemon has all of its settings,
// of kubeadm's file and of kind's, which leaves the limit of connections alone.
func TestTheManifestTakesKubeProxysConfigMapAsItIs(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "sed", "-f", vmapdtest.Folder(t)+"/deploy/from-kube-proxy.sed",
		vmapdtest.Folder(t)+"/deploy/vmapd.yaml").Output()
	if err != nil {
		t.Fatal(err)
	}
	objects := vmapdtest.DecodeDeployed(t, "vmapd.yaml", out)
	pod := vmapdtest.Object[appsv1.DaemonSet](t, objects, "DaemonSet vmapd").Spec.Template.Spec
	own := vmapdtest.Object[corev1.ConfigMap](t, objects, "ConfigMap vmapd")
	if _, ok := own.Data["vmapd.yaml"]; !ok || len(own.Data) != 1 {
		t.Errorf("the ConfigMap vmapd has %v, want vmapd.yaml alone", slices.Collect(maps.Keys(own.Data)))
	}
	files := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "config" })]
	var sources []string
	for _, s := range files.Projected.Sources {
		sources = append(sources, s.ConfigMap.Name)
	}
	testaid.Equal(t, "sources of the volume", []string{"kube-proxy", "vmapd"}, sources)
	for _, version := range []string{"kubeadm-1.37", "kind-1.33"} {
		t.Run(version, func(t *testing.T) {
			// conntrack: a section that some clusters need, and a field that has no effect.
			theirs := strings.Replace(stock(t, version), "tcpEstablishedTimeout: null", "tcpEstablishedTimeout: 23h", 1)
			theirs = strings.Replace(theirs, "configSyncPeriod: 0s", "configSyncPeriod: 7m", 1)
			dir := t.TempDir()
			for name, text := range map[string]string{
				"config.conf": theirs, "kubeconfig.conf": testaid.Read(t, stockKubeconfig), "vmapd.yaml": own.Data["vmapd.yaml"],
			} {
				vmapdtest.ReplaceFile(t, filepath.Join(dir, name), text)
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				const mounted = "/var/lib/kube-proxy"
				if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
					return m.Name == files.Name &&
						m.MountPath == mounted
				}) {
					t.Errorf("%s mounts %v, want the files at %s", c.Name, c.VolumeMounts, mounted)
				}
				_, conf := load(t, &c, func(arg string) string { return strings.ReplaceAll(arg, mounted, dir) })
				if got := conf.KubeProxy.Conntrack.TCPEstablishedTimeout.Duration; got != 23*time.Hour {
					t.Errorf("%s: tcpEstablishedTimeout is %v, want 23h", c.Name, got)
				}
				if got, kind := *conf.KubeProxy.Conntrack.MaxPerCore, version == "kind-1.33"; (got == 0) != kind {
					t.Errorf("%s: maxPerCore is %d", c.Name, got)
				}
				if got := conf.KubeProxy.ClientConnection.Kubeconfig; got != mounted+"/kubeconfig.conf" {
					t.Errorf("%s: kubeconfig %s", c.Name, got)
				}
				if !slices.ContainsFunc(conf.Notes, func(n config.Note) bool {
					return strings.Contains(n.Text,
						"configSyncPeriod: ignored")
				}) {
					t.Errorf("%s: no word of a field without effect: %v", c.Name, conf.Notes)
				}
			}
		})
	}
}

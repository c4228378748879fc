package takeover

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// granted are all that rules allow.
func granted(rules []rbacv1.PolicyRule) []apitest.Access {
	var all []apitest.Access
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					all = append(all, apitest.Access{Verb: verb, Group: group, Resource: apitest.Resource(resource)})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b apitest.Access) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
	return all
}

// conflicting is a Service with an external IP that another one has, too.
func conflicting(name, clusterIP string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: clusterIP, ClusterIPs: []string{clusterIP}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			ExternalIPs: []string{"192.168.99.77"}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// asDeployed starts the daemon with the files of the manifest's ConfigMap, changed where they
// must be: the kubeconfig is the test's. More can be appended to config.conf.
func asDeployed(t *testing.T, c *vmapdtest.Cluster, more string) *vmapdtest.Process {
	t.Helper()
	files := vmapdtest.Object[corev1.ConfigMap](t, vmapdtest.ReadDeployed(t, "vmapd.yaml"), "ConfigMap vmapd")
	dir := t.TempDir()
	config := filepath.Join(dir, "config.conf")
	vmapdtest.ReplaceFile(t, config, strings.ReplaceAll(files.Data["config.conf"], "/var/lib/vmapd/kubeconfig.conf",
		c.Kubeconfig())+more)
	vmapdtest.ReplaceFile(t, filepath.Join(dir, "vmapd.yaml"), files.Data["vmapd.yaml"])
	return c.Start(t, "--config="+config, "--vmapd-config="+filepath.Join(dir, "vmapd.yaml"),
		"--hostname-override="+lab.NodeName)
}

// aDay is what happens to a daemon: it starts, something on its node fails, Services change, two of them want the same
// address, once and again, and it ends.
func aDay(t *testing.T, c *vmapdtest.Cluster) {
	t.Helper()
	// In the node's network namespace nobody can set this limit. That is an event at the Node.
	const limit = "conntrack: {min: 1234567}\n"
	p := asDeployed(t, c, limit)
	p.WaitFor(t, "msg=ready")
	c.API.Set(conflicting("one", "172.30.0.20"))
	c.API.Set(conflicting("two", "172.30.0.21"))
	// times is how often the server heard that something happened.
	times := func(reason string) (most int32) {
		for _, e := range c.API.Events() {
			switch {
			case e.Reason != reason:
			case e.Series != nil:
				most = max(most, e.Series.Count)
			default:
				most = max(most, 1)
			}
		}
		return most
	}
	for _, reason := range []string{"Starting", "FrontendConflict", "FailedToSetUpConntrack"} {
		vmapdtest.WaitUntil(t, "an event "+reason, func() bool { return times(reason) > 0 })
	}
	two := conflicting("two", "172.30.0.21")
	externalIPs := two.Spec.ExternalIPs
	vmapdtest.WaitUntil(t, "a series of events", func() bool {
		two = two.DeepCopy()
		if two.Spec.ExternalIPs == nil {
			two.Spec.ExternalIPs = externalIPs
		} else {
			two.Spec.ExternalIPs = nil
		}
		c.API.Set(two)
		return times("FrontendConflict") > 1
	})
	vmapdtest.WaitUntil(t, "the change on the node", func() bool {
		return strings.Contains(vmapdtest.ListRuleset(t, c.Node),
			"172.30.0.21 . tcp . 80")
	})
	vmapdtest.Stop(t, p)
}

// The ClusterRole of the manifest is what the daemon asks for, no more and no less.
func TestTheClusterRoleIsWhatIsAskedFor(t *testing.T) {
	rules := vmapdtest.DeployedRules(t)
	asked := map[apitest.Access]bool{}
	for _, old := range []bool{false, true} { // servers before 1.32 are asked for lists, newer ones for watches alone
		t.Run(fmt.Sprintf("old server: %v", old), func(t *testing.T) {
			c := vmapdtest.ClusterOf(t, apitest.Options{NoWatchList: old, Rules: rules})
			aDay(t, c)
			if denied := c.API.Denied(); len(denied) > 0 {
				t.Errorf("denied: %v", denied)
			}
			for _, q := range c.API.Requests("") {
				if q.Resource != "" {
					asked[apitest.Access{Verb: q.Verb, Group: q.Group, Resource: q.Resource}] = true
				}
			}
		})
	}
	want := granted(rules)
	if len(want) == 0 {
		t.Fatal("the ClusterRole grants nothing")
	}
	for _, a := range want {
		if !asked[a] {
			t.Errorf("granted, but nobody asks: %+v", a)
		}
	}
	if len(asked) != len(want) {
		t.Errorf("asked for %d things, granted are %d", len(asked), len(want))
	}
}

// The manifest for users of kubectl vmapd lets them run commands in vmapd's pods, and read names elsewhere.
func TestThePermissionsOfThePlugin(t *testing.T) {
	objects := vmapdtest.ReadDeployed(t, "kubectl.yaml")
	role := vmapdtest.Object[rbacv1.Role](t, objects, "Role kubectl-vmapd")
	binding := vmapdtest.Object[rbacv1.RoleBinding](t, objects, "RoleBinding kubectl-vmapd")
	names := vmapdtest.Object[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding kubectl-vmapd-names")
	if diff := gocmp.Diff(binding.Subjects, names.Subjects); diff != "" || role.Namespace != "kube-system" ||
		binding.Namespace != role.Namespace || len(objects) != 4 {
		t.Errorf("namespaces %s and %s, %d objects; subjects differ: %s", role.Namespace, binding.Namespace, len(objects),
			diff)
	}
	for _, a := range granted(role.Rules) {
		if run := a.Resource == "pods/exec"; !run && a.Verb != "get" && a.Verb != "list" {
			t.Errorf("in kube-system, it may %s %s", a.Verb, a.Resource)
		}
	}
	for _, a := range granted(vmapdtest.Object[rbacv1.ClusterRole](t, objects, "ClusterRole kubectl-vmapd-names").Rules) {
		if a.Verb != "get" && a.Verb != "list" || a.Resource == "secrets" {
			t.Errorf("everywhere, it may %s %s", a.Verb, a.Resource)
		}
	}
}

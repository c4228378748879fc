package vmapdtest

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// Where web is reached.
var (
	WebVIP      = netip.MustParseAddrPort("172.30.0.10:80")
	WebNodePort = netip.MustParseAddrPort(lab.NodeIP4 + ":30080")
	WebVIP6     = netip.MustParseAddrPort("[fd00:172:30::10]:80")
)

// Cluster is a world with a node that reaches an API server, which has the objects of the demo: the Service web has
// three pods.
type Cluster struct {
	*lab.World
	API *apitest.Server
	Dir string // has a kubeconfig
	// The test refuses something that the manifest grants, or grants something else.
	OwnRules bool
}

// NewCluster makes a cluster that wants to know who asks, over TLS. Rules say what the proxy
// may do there. Without any, they are those of the manifest, and the test fails if something else is
// asked for.
func NewCluster(t *testing.T, rules ...rbacv1.PolicyRule) *Cluster {
	t.Helper()
	own := len(rules) > 0
	if !own {
		rules = DeployedRules(t)
	}
	c := ClusterOf(t, apitest.Options{Rules: rules})
	c.OwnRules = own
	t.Cleanup(func() {
		if denied := c.API.Denied(); len(denied) > 0 && !c.OwnRules {
			t.Errorf("the manifest's ClusterRole does not grant %v", denied)
		}
	})
	return c
}

// ClusterOf makes such a cluster with another API server, for tests of what it refuses.
func ClusterOf(t *testing.T, o apitest.Options) *Cluster {
	t.Helper()
	c := &Cluster{World: labtest.New(t), Dir: t.TempDir()}
	o.Secure = true
	if err := c.Node.Do(func() (err error) { c.API, err = apitest.NewServer(o); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.API.Close)
	for _, file := range []string{"services.yaml", "endpoints.yaml"} {
		for _, o := range Decode(t, filepath.Join(Demo(t), file)) {
			c.API.Set(o)
		}
	}
	c.API.Set(OurNode())
	if _, err := c.API.Kubeconfig(c.Dir); err != nil {
		t.Fatal(err)
	}
	return c
}

// DeployedRules are the permissions that the manifest for clusters gives vmapd.
func DeployedRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	return Object[rbacv1.ClusterRole](t, ReadDeployed(t, "vmapd.yaml"), "ClusterRole vmapd").Rules
}

// Deployed are the objects of a manifest, by kind and name.
type Deployed map[string]runtime.Object

// ReadDeployed decodes a manifest as strictly as kubectl apply --validate=strict does:
// unknown fields and those that are there twice are errors.
func ReadDeployed(t *testing.T, file string) Deployed {
	t.Helper()
	return DecodeDeployed(t, file, []byte(testaid.Read(t, filepath.Join(Folder(t), "deploy", file))))
}

// DecodeDeployed is ReadDeployed of a text.
func DecodeDeployed(t *testing.T, file string, text []byte) Deployed {
	t.Helper()
	all := Deployed{}
	for _, obj := range decode(t, file, text) {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		m, err := meta.Accessor(obj)
		if err != nil {
			t.Fatal(err)
		}
		all[kind+" "+m.GetName()] = obj
		cluster := kind == "ClusterRole" || kind == "ClusterRoleBinding"
		if namespace := m.GetNamespace(); (namespace == "") != cluster || namespace != "" && namespace != "kube-system" {
			t.Errorf("%s: %s %s is in namespace %q", file, kind, m.GetName(), namespace)
		}
	}
	return all
}

// Object is one of them.
func Object[T any](t *testing.T, d Deployed, name string) *T {
	t.Helper()
	obj, ok := d[name].(any).(*T)
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	return obj
}

// Forbid takes all permissions away.
func (c *Cluster) Forbid() {
	c.OwnRules = true
	c.API.SetRules([]rbacv1.PolicyRule{})
}

// Kubeconfig is the path of one.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// Config is a kube-proxy configuration for the cluster, with further lines.
func (c *Cluster) Config(lines ...string) string {
	return "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" +
		"clientConnection: {kubeconfig: " + c.Kubeconfig() + "}\n" + strings.Join(lines, "\n") + "\n"
}

// Start starts vmapd on the node, and ends it with the test.
func (c *Cluster) Start(t *testing.T, args ...string) *Process {
	t.Helper()
	return Start(t, c.Node, args...)
}

// StartReady starts vmapd with the kubeconfig, and waits until it is ready.
func (c *Cluster) StartReady(t *testing.T, args ...string) *Process {
	t.Helper()
	args = append([]string{"--kubeconfig", c.Kubeconfig(), "--hostname-override", lab.NodeName}, args...)
	return StartReady(t, c.Node, args...)
}

// Ask makes one connection from the client, which must be answered.
func (c *Cluster) Ask(t *testing.T, to netip.AddrPort) lab.Answer {
	t.Helper()
	a, err := c.Client.Ask(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Read reads a file as a process on the node sees it.
func (c *Cluster) Read(t *testing.T, path string) string {
	t.Helper()
	var text []byte
	if err := c.Node.Do(func() (err error) { text, err = os.ReadFile(path); return err }); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(text))
}

// Service is the Service of a name as the demo has it.
func (c *Cluster) Service(t *testing.T, name string) *corev1.Service {
	t.Helper()
	for _, o := range Decode(t, filepath.Join(Demo(t), "services.yaml")) {
		if s, ok := o.(*corev1.Service); ok && s.Name == name {
			return s
		}
	}
	t.Fatalf("the demo has no Service %s", name)
	return nil
}

// WantEvent waits for an event about an object with a text in its note, and returns it.
func (c *Cluster) WantEvent(t *testing.T, reason, kind, name, note string) eventsv1.Event {
	t.Helper()
	var found eventsv1.Event
	Eventually(t, func() string {
		all := c.API.Events()
		i := slices.IndexFunc(all, func(e eventsv1.Event) bool {
			return e.Reason == reason && e.Regarding.Kind == kind && e.Regarding.Name == name && strings.Contains(e.Note, note)
		})
		if i >= 0 {
			found = all[i]
			return ""
		}
		var text strings.Builder
		for _, e := range all {
			fmt.Fprintf(&text, "\n%s %s %s/%s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note)
		}
		return fmt.Sprintf("no event %s about %s %s with %q; there are:%s", reason, kind, name, note, &text)
	})
	return found
}

// OurNode is our Node.
func OurNode() *corev1.Node { return bench.LabNode() }

// WebSlice is the slice web-ipv4 with other endpoints, by the last byte of their addresses.
func WebSlice(pods ...byte) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-ipv4", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Format(time.RFC3339Nano)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("tcp"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))},
			{Name: new("udp"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(8080))},
		},
	}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{netip.AddrFrom4([4]byte{10, 0, 0, p}).String()}, NodeName: new(lab.NodeName),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	return s
}

// Decode reads the objects of a manifest.
func Decode(t *testing.T, path string) []runtime.Object {
	t.Helper()
	return decode(t, path, []byte(testaid.Read(t, path)))
}

func decode(t *testing.T, file string, text []byte) (all []runtime.Object) {
	t.Helper()
	strict := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		serializer.SerializerOptions{Yaml: true, Strict: true})
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		obj, _, err := strict.Decode(doc, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, doc)
		}
		all = append(all, obj)
	}
	return all
}

package takeover

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// stock is a ConfigMap of kubeadm's, of the kube-proxy of some version.
func stock(t *testing.T, version string) string {
	t.Helper()
	return testaid.Read(t, filepath.Join(vmapdtest.Folder(t), "internal/config/testdata", version+".yaml"))
}

const stockKubeconfig = "testdata/kubeconfig.conf"

// inPod mounts a pod's volumes where kubeadm's DaemonSet has them, and becomes the command
// that follows. Its arguments: the ConfigMap, the service account's secrets, the program.
const inPod = `set -e
mount -t tmpfs none /var/lib
mkdir /var/lib/kube-proxy
mount --bind "$1" /var/lib/kube-proxy
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount /run/bin
mount --bind "$2" /run/secrets/kubernetes.io/serviceaccount
ln -s "$3" /run/bin/vmapd
shift 3
PATH=/run/bin:$PATH exec "$@"
`

// startPod starts vmapd with kubeadm's ConfigMap and command line of kube-proxy.
func startPod(t *testing.T, c *vmapdtest.Cluster, config string) *vmapdtest.Process {
	t.Helper()
	kubeconfig := strings.ReplaceAll(testaid.Read(t, stockKubeconfig), "SERVER", c.API.URL())
	m := vmapdtest.NewConfigMap(t, map[string]string{"config.conf": config, "kubeconfig.conf": kubeconfig})
	secrets := t.TempDir()
	credentials := c.API.Config()
	testaid.Write(t, filepath.Join(secrets, "ca.crt"), string(credentials.CAData))
	testaid.Write(t, filepath.Join(secrets, "token"), credentials.BearerToken)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return vmapdtest.Launch(t, c.Node, "unshare", "unshare", "--mount", "--propagation", "private", "sh", "-c", inPod,
		"sh", m.Dir, secrets, program,
		"vmapd", "--config=/var/lib/kube-proxy/config.conf", "--hostname-override="+lab.NodeName)
}

// Clusters are switched by changing the image and the command's name: kubeadm's files, its
// command line and kube-proxy's permissions must do.
func TestKubeadmsKubeProxyIsReplacedAsItIs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		config, mode, metrics string
		warning               string // the event at the Node, if there is one
	}{
		{"kubeadm-1.37", "nftables", "127.0.0.1:10249", ""},
		{
			"kubeadm-1.31-iptables-dual-stack", "iptables", "[::1]:10249",
			`"iptables" is honoured, although the nftables backend is faster`,
		},
		{"kubeadm-1.33-nftables", "nftables", "127.0.0.1:10249", ""},
	} {
		t.Run(test.config, func(t *testing.T) {
			t.Parallel()
			c := vmapdtest.NewCluster(t, proxierRules()...)
			p := startPod(t, c, stock(t, test.config))
			p.WaitFor(t, "msg=ready")
			vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)
			vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/healthz", http.StatusOK)
			vmapdtest.WantStatus(t, c.Client, "http://["+lab.NodeIP6+"]:10256/healthz", http.StatusOK)
			if got := vmapdtest.WantStatus(t, c.Node, "http://"+test.metrics+"/proxyMode",
				http.StatusOK); got.Body != test.mode {
				t.Errorf("/proxyMode: %q, want %q", got.Body, test.mode)
			}
			for _, to := range []string{
				"172.30.0.10:80", "[fd00:172:30::10]:80", "192.168.99.10:80", "192.168.98.10:80",
				lab.NodeIP4 + ":30080",
			} {
				c.Ask(t, netip.MustParseAddrPort(to))
			}
			e := c.WantEvent(t, "Starting", "Node", lab.NodeName, test.mode)
			if e.Type != corev1.EventTypeNormal || e.Action != "StartKubeProxy" || string(e.Regarding.UID) != lab.NodeName {
				t.Errorf("the event at the start: %+v", e)
			}
			if test.warning != "" {
				if e := c.WantEvent(t, "Configuration", "Node", lab.NodeName, test.warning); e.Type != corev1.EventTypeWarning {
					t.Errorf("the event about the mode is %s", e.Type)
				}
			}
			if denied := c.API.Denied(); len(denied) > 0 {
				t.Errorf("kube-proxy's permissions do not suffice: %v", denied)
			}
		})
	}
}

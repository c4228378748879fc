package cli

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// newCluster is an API server with the objects of some files.
func newCluster(t *testing.T, files ...string) *apitest.Server {
	t.Helper()
	s, err := apitest.NewServer(apitest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, file := range files {
		for _, o := range vmapdtest.Decode(t, file) {
			s.Set(o)
		}
	}
	return s
}

// Two Services, of which another proxy serves one; with pods, one Service more.
const cluster, pods = "testdata/cluster.yaml", "testdata/pods.yaml"

const liveAnswer = `from 192.168.0.2 (a process of this node)
to   172.30.0.41:80/tcp
on   node-1

1. 172.30.0.41:80/tcp is the cluster IP of Service ns1/web, port "http".
2. internalTrafficPolicy is Cluster: endpoints on any node may answer.
3. 1 of 2 endpoints used:
     10.0.0.2:8080  on this node
   not used:
     10.0.0.3:8080  not ready (readiness probe failing, or still starting?); on an unknown node, EndpointSlice ns1/web-1
4. The only usable endpoint is chosen.
5. The source address stays 192.168.0.2: the endpoint sees it.

=> forwarded to 10.0.0.2:8080
`

func TestExplainLive(t *testing.T) {
	noServiceCIDRs := "=> not a Service: the connection continues to 172.30.0.99:80/tcp unchanged"
	for _, tt := range []struct {
		name    string
		pods    bool // the cluster has some
		refused apitest.Resource
		status  apitest.Fault
		args    string
		code    int
		stdout  string // all of it, or one line
		stderr  string
	}{
		{name: "a cluster", args: "--node-name node-1 --from node 172.30.0.41:80/tcp", stdout: liveAnswer},
		{
			name: "another proxy's Service", args: "--node-name node-1 --from node 172.30.0.42:80/tcp",
			stdout: "   172.30.0.42 is an address of Service ns1/mesh, which the label " +
				"service.kubernetes.io/service-proxy-name=mesh assigns to another proxy.",
		},
		{
			name: "a ServiceCIDR", args: "--node-name node-1 --from node 172.30.0.99:80/tcp",
			stdout: "=> dropped: 172.30.0.99 is in a range of cluster IPs, and no Service served on this node has it " +
				"(the client gets no answer, and times out)",
		},
		{
			name: "an old cluster has none", refused: apitest.ServiceCIDRs, status: http.StatusNotFound,
			args: "--node-name node-1 --from node 172.30.0.99:80/tcp", stdout: noServiceCIDRs,
		},
		{
			name: "no right to read them", refused: apitest.ServiceCIDRs, status: http.StatusForbidden,
			args: "--node-name node-1 --from node 172.30.0.99:80/tcp", stdout: noServiceCIDRs,
			stderr: "vmapd: list servicecidrs: servicecidrs is forbidden: no permission; continuing without them\n",
		},
		{
			name: "no right to read the Node", refused: apitest.Nodes, status: http.StatusForbidden,
			args:   "--node-name node-1 --from 203.0.113.7 172.30.0.41:80/tcp",
			stdout: "on   node-1 (its Node object is missing, so its addresses and its zone are not known)",
			stderr: "vmapd: list nodes: nodes is forbidden: no permission; continuing without them\n",
		},
		{
			name: "no such Node", args: "--node-name node-2 --from node 172.30.0.41:80/tcp", code: 1,
			stderr: "vmapd: --node-name: node \"node-2\" not found; the nodes: node-1\n",
		},
		{
			name: "no right to read Services", refused: apitest.Services, status: http.StatusForbidden,
			args: "--node-name node-1 --from node 172.30.0.41:80/tcp", code: 1,
			stderr: "vmapd: list services: services is forbidden: no permission\n",
		},
		{
			name: "a pod", pods: true, args: "--from pod/client svc/web:http",
			stdout: "from pod ns1/client, 10.0.0.9 (possibly a pod: no range of pods is known (--cluster-cidr, or the " +
				"Node's spec.podCIDRs))",
		},
		{
			name: "the pod of an endpoint", pods: true, args: "--from pod/client svc/web:http",
			stdout: "     10.0.0.2:9999  web-1 on this node",
		},
		{
			name: "a selector that no pod matches", pods: true, args: "--from pod/client svc/empty:80",
			stdout: "next: spec.selector of Service ns1/empty is app=wbe. Which pods have these labels? " +
				"kubectl -n ns1 get pods --show-labels",
		},
		{
			name: "without permission, an endpoint", pods: true, refused: apitest.Pods, status: http.StatusForbidden,
			args: "--from pod/web-1 svc/web:http", stdout: "=> forwarded to 10.0.0.2:9999 (web-1)",
		},
		{
			name: "without permission, another pod", pods: true, refused: apitest.Pods, status: http.StatusForbidden,
			args: "-n ns1 --from pod/client svc/web:http", code: 1,
			stderr: "vmapd: --from: pod \"client\" not found in namespace ns1 (only pods that are endpoints of Services are " +
				"known: list pods: pods is forbidden: no permission)\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := []string{cluster}
			if tt.pods {
				files = append(files, pods)
			}
			s := newCluster(t, files...)
			if tt.refused != "" {
				s.Fault(tt.refused, tt.status)
			}
			var stdout, stderr bytes.Buffer
			args := append([]string{"explain", "--kubeconfig", kubeconfigOf(t, s)}, strings.Fields(tt.args)...)
			code := cli.Run(t.Context(), args, nil, &stdout, &stderr)
			if code != tt.code || stderr.String() != tt.stderr {
				t.Errorf("exit code %d, %q; want %d, %q", code, &stderr, tt.code, tt.stderr)
			}
			if got := stdout.String(); got != tt.stdout && !strings.Contains("\n"+got, "\n"+tt.stdout+"\n") {
				t.Errorf("want %q, got:\n%s", tt.stdout, got)
			}
			for _, q := range s.Requests("") {
				if q.Method != http.MethodGet || q.Verb == "watch" {
					t.Errorf("%s %s: explain must only look", q.Method, q.URL.Path)
				}
			}
		})
	}
}

func kubeconfigOf(t *testing.T, s *apitest.Server) string {
	t.Helper()
	path, err := s.Kubeconfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The kubeconfig of the command line counts, with and without a configuration file, and nothing
// says otherwise.
func TestExplainLiveWithConfigAndKubeconfig(t *testing.T) {
	s := newCluster(t, cluster)
	kubeconfig := kubeconfigOf(t, s)
	conf := filepath.Join(t.TempDir(), "config.conf")
	text := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" +
		"clusterCIDR: 10.0.0.0/8\nclientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}\n"
	testaid.Write(t, conf, text)
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), []string{
		"explain", "--kubeconfig", kubeconfig, "--config", conf, "--node-name", "node-1", "--from", "node",
		"172.30.0.41:80/tcp",
	}, nil, &stdout, &stderr)
	if code != 0 || stderr.Len() > 0 || !strings.Contains(stdout.String(), "ns1/web") {
		t.Errorf("exit code %d, %q; want an explanation and no word about the flags:\n%s", code, &stderr, &stdout)
	}
}

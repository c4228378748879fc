package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// Services of pods that answer, on which nothing listens, and before which somebody rejects or drops.
const probedObjects = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}
---
apiVersion: v1
kind: Service
metadata: {name: good, namespace: shop}
spec: {clusterIP: 172.30.0.41, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: good-1, namespace: shop, labels: {kubernetes.io/service-name: good}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: ["10.0.0.3"], nodeName: node-1, targetRef: {kind: Pod, name: web-1}}]
---
apiVersion: v1
kind: Service
metadata: {name: wrong, namespace: shop}
spec: {clusterIP: 172.30.0.42, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 9999}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: wrong-1, namespace: shop, labels: {kubernetes.io/service-name: wrong}}
addressType: IPv4
ports: [{name: http, port: 9999}]
endpoints: [{addresses: ["10.0.0.3"], nodeName: node-1, targetRef: {kind: Pod, name: web-1}}]
---
apiVersion: v1
kind: Service
metadata: {name: prohibited, namespace: shop}
spec: {clusterIP: 172.30.0.43, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: prohibited-1, namespace: shop, labels: {kubernetes.io/service-name: prohibited}}
addressType: IPv4
ports: [{name: "", port: 7001}]
endpoints: [{addresses: ["10.0.0.3"], nodeName: node-1}]
---
apiVersion: v1
kind: Service
metadata: {name: silent, namespace: shop}
spec: {clusterIP: 172.30.0.44, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: silent-1, namespace: shop, labels: {kubernetes.io/service-name: silent}}
addressType: IPv4
ports: [{name: "", port: 7002}]
endpoints: [{addresses: ["10.0.0.3"], nodeName: node-1}]
`

// The probe says what each endpoint itself answered, and names the field that is wrong.
func TestProbeSaysWhatAnswered(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(probedObjects), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	startVmapd(t, w.Node, "--from", dir, "--hostname-override", lab.NodeName, "--cluster-cidr", "10.0.0.0/8", "--socket", socket).waitFor(t, "msg=ready")
	rules := w.Pods()[1].Command(t.Context(), "nft", "-f", "-")
	rules.Stdin = strings.NewReader(`table inet others {
		chain in {
			type filter hook input priority 0
			tcp dport 7001 reject with icmpx admin-prohibited
			tcp dport 7002 drop
		}
	}`)
	if out, err := rules.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	// The network of the first pod is visible by a process.
	process := w.Pods()[0].Command(t.Context(), "sleep", "600")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })

	for _, tt := range []struct {
		from, to string
		want     []string // lines
	}{
		{"node", "svc/good", []string{
			`\s+172\.30\.0\.41:80\s+the Service: connected, after [0-9.]+ ms`, `\s+10\.0\.0\.3:8080\s+web-1: connected, after [0-9.]+ ms`,
			`.*Real connections, from this machine's own network:`,
		}},
		{"10.0.0.2", "svc/good", []string{
			`.*Real connections, from the network of 10\.0\.0\.2:`, `\s+172\.30\.0\.41:80\s+the Service: connected, after [0-9.]+ ms`,
		}},
		{"203.0.113.9", "svc/good", []string{`.*Real connections, from this machine's own network, not from 203\.0\.113\.9:`}},
		{"node", "svc/wrong", []string{
			`\s+172\.30\.0\.42:80\s+the Service: refused`, `\s+10\.0\.0\.3:9999\s+web-1: refused by the pod: nothing listens on 9999`,
			`next: spec\.ports\[0\]\.targetPort of Service shop/wrong is 9999, and nothing listens on port 9999 of its pods: .*`,
		}},
		{"node", "svc/prohibited", []string{
			`\s+10\.0\.0\.3:7001\s+an endpoint: unreachable \(ICMP error from 10\.0\.0\.3: administratively prohibited \(a firewall\)\)`,
		}},
		{"node", "svc/silent", []string{
			`\s+10\.0\.0\.3:7002\s+an endpoint: silent: no answer in time`,
			`next: The endpoints do not answer without the Service either: .*`,
		}},
	} {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			cmd := w.Node.Command(t.Context(), "/proc/self/exe", "explain", "--socket", socket, "--probe", "--from", tt.from, tt.to)
			cmd.Args[0] = "vmapd"
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range tt.want {
				wantLine(t, string(out), want)
			}
		})
	}
}

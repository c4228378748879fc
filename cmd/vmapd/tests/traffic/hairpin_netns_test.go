package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
)

// The pods of another node: with externalTrafficPolicy Local, their connections to this node's port keep their source.
var distant = [len(model.Families)]netip.Addr{netip.MustParseAddr("10.0.1.3"), netip.MustParseAddr("fd00:10::1:3")}

const distantService = `apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}, {type: InternalIP, address: "fd00:192:168::2"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  clusterIPs: [172.30.0.41, "fd00:172:30::41"]
  ipFamilies: [IPv4, IPv6]
  ports: [{port: 80, nodePort: 30001}]
`

// A pod that connects to a port of another node may get itself. Its source must be replaced, or the packet comes back to
// the pod with the pod's own address as source, which the kernel drops as a martian.
func TestAPodGetsItselfByAnotherNode(t *testing.T) {
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			w := labtest.With(t, lab.Config{})
			text := distantService
			for _, f := range model.Families {
				to := lab.Route{Dst: netip.PrefixFrom(distant[f], distant[f].BitLen()), Link: lab.UplinkName}
				if err := errors.Join(w.AddClientAddr(distant[f]), w.Node.AddRoute(to)); err != nil {
					t.Fatal(err)
				}
				text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%d, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: %v
ports: [{name: "", protocol: TCP, port: 8080}]
endpoints: [{addresses: [%q], nodeName: node-2, conditions: {ready: true}}]
`, f, f, distant[f])
			}
			server, err := w.Client.Serve("distant", 8080)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			file := filepath.Join(t.TempDir(), "web.yaml")
			vmapdtest.ReplaceFile(t, file, text)
			vmapdtest.StartReady(t, w.Node, "--from", file, "--hostname-override", lab.NodeName, "--socket=",
				"--backend", backend, "--cluster-cidr", lab.PodRange4+","+lab.PodRange6)
			for f, port := range []string{"192.168.0.2:30001", "[fd00:192:168::2]:30001"} {
				to := netip.MustParseAddrPort(port)
				got, err := w.Client.AskFrom(t.Context(), distant[f], "tcp", to)
				if err != nil {
					t.Errorf("%v to %v: %v", distant[f], to, err)
				} else if got.Source.Addr() != to.Addr() {
					t.Errorf("%v to %v: the pod sees %v as source, want the node's address", distant[f], to, got.Source)
				}
			}
		})
	}
}

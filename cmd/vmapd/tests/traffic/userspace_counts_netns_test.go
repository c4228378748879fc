package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// closedDemo returns a folder with the demo's objects, and two Services more: one at 192.168.98.20 whose
// source ranges admit nobody in the lab, and one whose endpoint is a closed port.
func closedDemo(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	vmapdtest.EditDemo(t, folder, func(text string) string { return text })
	service := func(name, clusterIP, spec string, port int) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec: {clusterIP: %[2]s, clusterIPs: [%[2]s], ports: [{name: tcp, port: 80, protocol: TCP}, {name: udp, port: 80, protocol: UDP}]%[3]s
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: tcp, port: %[4]d, protocol: TCP}, {name: udp, port: %[4]d, protocol: UDP}]
endpoints: [{addresses: [10.0.0.2], nodeName: node-1, conditions: {ready: true}}]
---
`, name, clusterIP, spec, port)
	}
	more := service("closed", "172.30.0.20", ", type: LoadBalancer, loadBalancerSourceRanges: [198.18.0.0/15]}\n"+
		"status: {loadBalancer: {ingress: [{ip: 192.168.98.20}]}}", 8080) + service("dead", "172.30.0.21", "}", 9)
	if err := os.WriteFile(filepath.Join(folder, "more.yaml"), []byte(more), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// New connections are counted by their outcome; those whom source ranges do not admit are in none.
func TestUserspaceCountsConnections(t *testing.T) {
	w := labtest.New(t)
	path := filepath.Join(t.TempDir(), "vmapd.sock")
	vmapdtest.Start(t, w.Node, append([]string{"--from", closedDemo(t), "--service-counters", "--socket", path}, vmapdtest.UserspaceArgs...)...).WaitFor(t, "msg=ready")
	const asked = 4
	for range asked {
		for _, network := range []string{"tcp", "udp"} {
			if _, err := w.Client.Ask(t.Context(), network, netip.MustParseAddrPort("172.30.0.10:80")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for network, want := range map[string]lab.Failure{"tcp": lab.Reset, "udp": lab.Timeout} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := w.Client.Ask(ctx, network, netip.MustParseAddrPort("192.168.98.20:80"))
		cancel()
		if lab.FailureOf(err) != want {
			t.Errorf("%s: want %v, got %v", network, want, err)
		}
	}
	if _, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort("172.30.0.21:80")); lab.FailureOf(err) != lab.Reset {
		t.Errorf("want a reset, as the endpoint refuses, got %v", err)
	}
	wantCounts := map[string]string{ // forwarded, refused
		"web tcp": "4 0", "web udp": "4 0", "closed tcp": "0 0", "closed udp": "0 0", "dead tcp": "0 1",
	}
	vmapdtest.Eventually(t, func() string {
		all := (&vmapdtest.Cluster{World: w}).Scrape(t)
		var errs []error
		for port, want := range wantCounts {
			service, name, _ := strings.Cut(port, " ")
			var got []string
			for _, outcome := range []string{"forwarded", "refused"} {
				n, ok := vmapdtest.Value(all, "vmapd_service_connections_total", "service="+service, "port="+name, "ip_family=IPv4", "outcome="+outcome)
				if !ok {
					n = -1
				}
				got = append(got, fmt.Sprint(n))
			}
			if text := strings.Join(got, " "); text != want {
				errs = append(errs, fmt.Errorf("%s: %s, want %s", port, text, want))
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err.Error()
		}
		return ""
	})
	var one status.One
	if err := json.Unmarshal([]byte(vmapdtest.AskDaemon(t, path, "status", "web", "-o", "json")), &one); err != nil {
		t.Fatal(err)
	}
	if n := one.Ports[0].Connections; n == nil || *n != asked {
		t.Errorf("vmapd status web has %v connections, want %d", n, asked)
	}
}

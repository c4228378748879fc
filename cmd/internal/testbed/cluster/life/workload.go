package life

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

//go:embed workload.yaml
var workload string

// Addresses of load balancers, which the outside client has routes to.
const (
	webBalancer4  = "192.168.88.6"
	webBalancer6  = "fd88::6"
	localBalancer = "192.168.88.7"
	nodePort      = 30080
)

// The nodes that clients are on, or go through. Steps that need one node take the second.
const first, second = "n1", "n2"

// startWorkload makes the pods and Services, or restores them, and returns the routes to them.
func (r *Run) startWorkload(ctx context.Context) ([]lab.Path, error) {
	if err := r.Apply(ctx, strings.ReplaceAll(workload, "IMAGE", kube.PodserverImage)); err != nil {
		return nil, err
	}
	for service, ips := range map[string]string{
		"web":   `[{"ip":"` + webBalancer4 + `"},{"ip":"` + webBalancer6 + `"}]`,
		"local": `[{"ip":"` + localBalancer + `"}]`,
	} {
		patch := `{"status":{"loadBalancer":{"ingress":` + ips + `}}}`
		args := []string{"-n", "life", "patch", "service", service, "--subresource=status", "-p", patch}
		if _, err := r.Kubectl(ctx, args...); err != nil {
			return nil, err
		}
	}
	if err := workloadReady(ctx, r); err != nil {
		return nil, err
	}
	first4, _ := kube.Addresses(first)
	_, second6 := kube.Addresses(second)
	for to, via := range map[string]netip.Addr{webBalancer4: first4, localBalancer: first4, webBalancer6: second6} {
		if err := on(kube.Outside, fmt.Sprintf("ip route replace %s via %v", to, via))(ctx, r); err != nil {
			return nil, err
		}
	}
	return r.routes(ctx)
}

func (r *Run) routes(ctx context.Context) ([]lab.Path, error) {
	out, err := r.Kubectl(ctx, "-n", "life", "get", "service", "web", "-o", "jsonpath={.spec.clusterIPs[*]}")
	if err != nil {
		return nil, err
	}
	var clusterIP [2]netip.Addr // IPv4, IPv6
	for ip := range strings.FieldsSeq(out) {
		if a := netip.MustParseAddr(ip); a.Is4() {
			clusterIP[0] = a
		} else {
			clusterIP[1] = a
		}
	}
	from, err := r.clients(ctx)
	if err != nil {
		return nil, err
	}
	first4, _ := kube.Addresses(first)
	second4, second6 := kube.Addresses(second)
	to, balancer := netip.AddrPortFrom, netip.MustParseAddr
	route := func(name string, from *lab.Namespace, network string, to netip.AddrPort) lab.Path {
		return lab.Path{Name: name, From: from, Network: network, To: to}
	}
	return []lab.Path{
		route("outside to a node port, IPv4", from[kube.Outside], "tcp", to(first4, nodePort)),
		route("outside to a node port, IPv6", from[kube.Outside], "tcp", to(second6, nodePort)),
		route("outside to a node port, UDP", from[kube.Outside], "udp", to(second4, nodePort)),
		route("outside to a load balancer, IPv4", from[kube.Outside], "tcp", to(balancer(webBalancer4), 80)),
		route("outside to a load balancer, IPv6", from[kube.Outside], "tcp", to(balancer(webBalancer6), 80)),
		route("outside to a load balancer, policy Local", from[kube.Outside], "tcp", to(balancer(localBalancer), 80)),
		route("pod to a cluster IP, IPv4", from["pod on "+first], "tcp", to(clusterIP[0], 80)),
		route("pod to a cluster IP, IPv6", from["pod on "+second], "tcp", to(clusterIP[1], 80)),
		route("pod to a cluster IP, UDP", from["pod on "+first], "udp", to(clusterIP[0], 80)),
		route("node to a cluster IP, IPv4", from[second], "tcp", to(clusterIP[0], 80)),
	}, nil
}

// clients returns the network namespaces that clients are in, by name.
func (r *Run) clients(ctx context.Context) (map[string]*lab.Namespace, error) {
	pids := map[string]string{}
	for _, space := range []string{kube.Outside, second} {
		pids[space] = strconv.Itoa(r.Process("space-" + space).PID())
	}
	for _, node := range []string{first, second} {
		// The last pod is not one that ends. Its UID is part of the name of its control group.
		const find = `uid=$(kubectl -n life get pods -l app=client --field-selector=spec.nodeName=%s \
  --sort-by=.metadata.creationTimestamp -o 'jsonpath={.items[-1:].metadata.uid}')
test -n "$uid"
{ grep -ls "$uid" /proc/[0-9]*/cgroup || true; } | sed -n 1p | cut -d / -f 3`
		pid, err := r.Shell(ctx, kube.Control, fmt.Sprintf(find, node))
		if err != nil {
			return nil, err
		}
		pids["pod on "+node] = strings.TrimSpace(pid)
	}
	from := map[string]*lab.Namespace{}
	for name, pid := range pids {
		// Without a process, there is no such file.
		ns, err := lab.OpenNamespace(name, filepath.Join("/proc", pid, "ns/net"))
		if err != nil {
			return nil, fmt.Errorf("find the client %s: %w", name, err)
		}
		from[name] = ns
	}
	return from, nil
}

package life

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
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

// The nodes that clients are on, or go through. Steps befall the second.
const first, second = "n1", "n2"

// startWorkload makes the pods and Services, or restores them, and returns the routes to them.
func (r *Run) startWorkload(ctx context.Context) ([]Route, error) {
	if err := r.Apply(ctx, FillIn(workload, map[string]string{"IMAGE": PodImage})); err != nil {
		return nil, err
	}
	for service, ips := range map[string]string{
		"web":   `[{"ip":"` + webBalancer4 + `"},{"ip":"` + webBalancer6 + `"}]`,
		"local": `[{"ip":"` + localBalancer + `"}]`,
	} {
		patch := `{"status":{"loadBalancer":{"ingress":` + ips + `}}}`
		if _, err := r.Kubectl(ctx, "-n", "life", "patch", "service", service, "--subresource=status", "-p", patch); err != nil {
			return nil, err
		}
	}
	if err := r.workloadReady(ctx); err != nil {
		return nil, err
	}
	first4, _ := kube.Addresses(first)
	_, second6 := kube.Addresses(second)
	for to, via := range map[string]netip.Addr{webBalancer4: first4, localBalancer: first4, webBalancer6: second6} {
		if err := r.ip(ctx, kube.Outside, "route", "replace", to, "via", via.String()); err != nil {
			return nil, err
		}
	}
	return r.routes(ctx)
}

func (r *Run) workloadReady(ctx context.Context) error {
	for _, w := range []string{"deployment/web", "daemonset/client"} {
		if err := r.rolledOut(ctx, "life", w); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) routes(ctx context.Context) ([]Route, error) {
	out, err := r.Kubectl(ctx, "-n", "life", "get", "service", "web", "-o", "jsonpath={.spec.clusterIPs[*]}")
	if err != nil {
		return nil, err
	}
	var clusterIP [2]netip.Addr // IPv4, IPv6
	for ip := range strings.FieldsSeq(out) {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, fmt.Errorf("read cluster IPs of Service life/web: %w", err)
		}
		clusterIP[map[bool]int{true: 0, false: 1}[a.Is4()]] = a
	}
	from, err := r.clients(ctx)
	if err != nil {
		return nil, err
	}
	first4, _ := kube.Addresses(first)
	second4, second6 := kube.Addresses(second)
	to, balancer := netip.AddrPortFrom, netip.MustParseAddr
	return []Route{
		{"outside to a node port, IPv4", from[kube.Outside], "tcp", to(first4, nodePort)},
		{"outside to a node port, IPv6", from[kube.Outside], "tcp", to(second6, nodePort)},
		{"outside to a node port, UDP", from[kube.Outside], "udp", to(second4, nodePort)},
		{"outside to a load balancer, IPv4", from[kube.Outside], "tcp", to(balancer(webBalancer4), 80)},
		{"outside to a load balancer, IPv6", from[kube.Outside], "tcp", to(balancer(webBalancer6), 80)},
		{"outside to a load balancer, policy Local", from[kube.Outside], "tcp", to(balancer(localBalancer), 80)},
		{"pod to a cluster IP, IPv4", from["pod on "+first], "tcp", to(clusterIP[0], 80)},
		{"pod to a cluster IP, IPv6", from["pod on "+second], "tcp", to(clusterIP[1], 80)},
		{"pod to a cluster IP, UDP", from["pod on "+first], "udp", to(clusterIP[0], 80)},
		{"node to a cluster IP, IPv4", from[second], "tcp", to(clusterIP[0], 80)},
	}, nil
}

// clients returns the network namespaces that clients are in, by name.
func (r *Run) clients(ctx context.Context) (map[string]*lab.Namespace, error) {
	from, err := r.clientPods(ctx)
	if err != nil {
		return nil, err
	}
	for _, space := range []string{kube.Outside, second} {
		if from[space], err = r.space(space); err != nil {
			return nil, err
		}
	}
	return from, nil
}

// clientPods returns the network namespaces of the clients' pods by their nodes.
func (r *Run) clientPods(ctx context.Context) (map[string]*lab.Namespace, error) {
	out, err := r.Kubectl(ctx, "-n", "life", "get", "pods", "-l", "app=client", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				UID               string
				DeletionTimestamp string
			}
			Spec struct{ NodeName string }
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("read the clients' pods: %w", err)
	}
	pods := map[string]*lab.Namespace{}
	for _, p := range list.Items {
		if p.Metadata.DeletionTimestamp != "" {
			continue
		}
		pids, err := processes(p.Metadata.UID)
		if err != nil {
			return nil, err
		}
		if len(pids) == 0 {
			return nil, fmt.Errorf("no process of the client's pod on node %s", p.Spec.NodeName)
		}
		name := "pod on " + p.Spec.NodeName
		if pods[name], err = lab.OpenNamespace(name, filepath.Join("/proc", pids[0], "ns/net")); err != nil {
			return nil, err
		}
	}
	for _, n := range []string{first, second} {
		if pods["pod on "+n] == nil {
			return nil, fmt.Errorf("no client's pod on node %s", n)
		}
	}
	return pods, nil
}

// processes returns the process IDs in a pod, whose UID is part of their control group's name.
func processes(uid string) ([]string, error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	// The driver systemd writes underscores.
	other := strings.ReplaceAll(uid, "-", "_")
	var pids []string
	for _, g := range groups {
		text, err := os.ReadFile(g)
		if err == nil && (strings.Contains(string(text), uid) || strings.Contains(string(text), other)) {
			pids = append(pids, filepath.Base(filepath.Dir(g)))
		}
	}
	return pids, nil
}

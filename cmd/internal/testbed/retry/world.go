package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// Kinds of Services.
const (
	plain    = "plain"
	affinity = "session affinity"
	maglev   = "Maglev"
	local    = "externalTrafficPolicy Local"
	dns      = "DNS"
)

const (
	podPort  = 8080
	nodePort = 30080
)

// world has the Service web, with the first pods as endpoints. One more pod is a client. With the policy Local, another
// one is an endpoint on another Node.
type world struct {
	*lab.World
	o       *options
	r       *run
	server  *apitest.Server
	folder  string
	daemon  *lab.Daemon
	servers map[string]*lab.Server // by pod
	clients []*client
	undo    []func()
}

func newWorld(ctx context.Context, o *options, r *run) (w *world, err error) {
	w = &world{o: o, r: r, servers: map[string]*lab.Server{}}
	if w.World, err = lab.New(ctx, lab.Config{Pods: r.endpoints + 2}); err != nil {
		return w, err
	}
	for _, p := range w.Pods() {
		if w.servers[p.Name()], err = p.Serve(podPort); err != nil {
			return w, err
		}
	}
	if err := w.addClients(); err != nil {
		return w, err
	}
	if w.folder, err = os.MkdirTemp("", "vmapd-retry-"); err != nil {
		return w, err
	}
	err = w.Node.Do(func() (err error) { w.server, err = apitest.NewServer(apitest.Options{}); return err })
	if err != nil {
		return w, err
	}
	w.setObjects()
	kubeconfig, err := w.server.Kubeconfig(w.folder)
	if err != nil {
		return w, err
	}
	program, args := o.vmapd, []string{"--backend", "nftables", "--socket", filepath.Join(w.folder, "vmapd.sock")}
	switch r.proxy {
	case withoutRetry:
		args = append(args, "--connection-retry=false")
	case kubeNFTables:
		program, args = o.kubeProxy, []string{"--proxy-mode", "nftables"}
	case kubeIPTables:
		program, args = o.kubeProxy, []string{"--proxy-mode", "iptables"}
	}
	args = append(args, "--cluster-cidr", lab.PodRange4+","+lab.PodRange6, "--hostname-override", lab.NodeName,
		"--kubeconfig", kubeconfig, "--conntrack-max-per-core", "0")
	w.daemon, err = w.Node.Start(ctx, program, args...)
	return w, err
}

// Where the Service is reached, by family.
func clusterIPs() [2]string    { return [2]string{"172.30.0.10", "fd00:172:30::10"} }
func loadBalancers() [2]string { return [2]string{"192.168.98.10", "fd00:192:168:98::10"} }
func nodeAddresses() [2]string { return [2]string{lab.NodeIP4, lab.NodeIP6} }
func families() [2]string      { return [2]string{"IPv4", "IPv6"} }

// addClients makes the clients, with their addresses.
func (w *world) addClients() error {
	pod := w.pod(w.r.endpoints)
	addToPod := func(a netip.Addr) error { return w.AddPodAddr(pod, a) }
	addToNode := func(a netip.Addr) error { return w.Node.AddAlias(lab.UplinkName, a) }
	const outside = "outside, "
	for _, place := range []struct {
		name      string
		from      *lab.Namespace
		add       func(netip.Addr) error
		first, to [2]string // the first of its addresses, and the Service's, by family
		port      uint16
	}{
		{"pod", pod.Namespace, addToPod, [2]string{"10.200.0.1", "fd00:10::c:1"}, clusterIPs(), w.port()},
		{"node", w.Node, addToNode, [2]string{"192.168.0.10", "fd00:192:168::a:1"}, clusterIPs(), w.port()},
		{outside + "node port", w.Client, w.AddClientAddr,
			[2]string{"203.0.113.20", "2001:db8:203::a:1"}, nodeAddresses(), nodePort},
		{outside + "load balancer", w.Client, w.AddClientAddr,
			[2]string{"203.0.113.130", "2001:db8:203::b:1"}, loadBalancers(), w.port()},
	} {
		if w.r.kind == local && place.from != w.Client {
			continue // the policy is for connections from outside
		}
		for f, family := range families() {
			c := &client{name: place.name + ", " + family, from: place.from, dns: w.r.kind == dns}
			c.to = netip.AddrPortFrom(netip.MustParseAddr(place.to[f]), place.port)
			a := netip.MustParseAddr(place.first[f])
			for range w.o.clients {
				if err := place.add(a); err != nil {
					return err
				}
				c.sources = append(c.sources, a)
				a = a.Next()
			}
			w.clients = append(w.clients, c)
		}
	}
	return nil
}

// port is that of the Service.
func (w *world) port() uint16 {
	if w.r.kind == dns {
		return 53
	}
	return 80
}

// setObjects writes the Node, the Service and its EndpointSlices to the API server.
func (w *world) setObjects() {
	ipv4, ipv6 := clusterIPs()[0], clusterIPs()[1]
	w.server.Set(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: lab.NodeName},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: lab.NodeIP4}, {Type: corev1.NodeInternalIP, Address: lab.NodeIP6},
		}},
	})
	protocol := corev1.ProtocolTCP
	if w.r.kind == dns {
		protocol = corev1.ProtocolUDP
	}
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: ipv4, ClusterIPs: []string{ipv4, ipv6},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{{
				Protocol: protocol, Port: int32(w.port()), TargetPort: intstr.FromInt32(podPort), NodePort: nodePort,
			}},
		},
	}
	for _, ip := range loadBalancers() {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	switch w.r.kind {
	case affinity:
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		const hours = 3 * 60 * 60 // seconds, which the API server would fill in
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(hours))},
		}
	case maglev:
		s.Annotations["vmapd.io/lb-algorithm"] = "maglev"
	case local:
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		const healthPort = 30081
		s.Spec.HealthCheckNodePort = healthPort
	}
	if w.r.annotated {
		s.Annotations["vmapd.io/connection-retry"] = "false"
	}
	w.server.Set(s)
	for f, family := range families() {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "web-" + strconv.Itoa(f),
				Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
			},
			AddressType: discoveryv1.AddressType(family),
			Ports:       []discoveryv1.EndpointPort{{Name: new(""), Protocol: &protocol, Port: new(int32(podPort))}},
		}
		for i, p := range w.Pods() {
			node := lab.NodeName
			if i == w.r.endpoints || i > w.r.endpoints && w.r.kind != local {
				continue
			} else if i > w.r.endpoints {
				node = "node-2"
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{[2]netip.Addr{p.IP4, p.IP6}[f].String()}, NodeName: &node,
				Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			})
		}
		w.server.Set(slice)
	}
}

// settle waits until each client is answered, and notes by whom.
func (w *world) settle(ctx context.Context) error {
	const patience, pause, often = time.Minute, 20 * time.Millisecond, 2
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, c := range w.clients {
		for {
			asking, done := context.WithTimeout(ctx, time.Second)
			_, _, err := c.ask(asking, c.sources[0])
			done()
			if err == nil {
				break
			}
			if err := lab.Pause(ctx, pause); err != nil {
				return fmt.Errorf("%s is not answered: %w", c.name, err)
			}
		}
		all, err := c.askAll(ctx, often, w.o.within)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if w.r.kind == affinity || w.r.kind == maglev {
			c.before = all
		}
	}
	return nil
}

// load has all clients connect, and then asks once more who answers whom.
func (w *world) load(ctx context.Context) {
	loading, cancel := context.WithTimeout(ctx, w.o.lasts)
	defer cancel()
	const often = 3
	var wait sync.WaitGroup
	for _, c := range w.clients {
		wait.Go(func() { c.load(loading, w.o) })
	}
	wait.Wait()
	for _, c := range w.clients {
		wait.Go(func() {
			if c.before != nil {
				c.after, _ = c.askAll(ctx, often, w.o.within) // a client that fails has fewer answers
			}
		})
	}
	wait.Wait()
}

// pod is one of the endpoints, from 0 on.
func (w *world) pod(n int) *lab.Pod { return w.Pods()[n] }

// lastLog returns the last lines of what the proxy has written.
func (w *world) lastLog() string {
	const most = 4000
	text := w.daemon.Log.String()
	return text[max(0, len(text)-most):]
}

func (w *world) close() error {
	if w.daemon != nil {
		_ = w.daemon.End(os.Kill)
	}
	for _, undo := range w.undo {
		undo()
	}
	var errs []error
	if w.server != nil {
		w.server.Close()
	}
	if w.folder != "" {
		errs = append(errs, os.RemoveAll(w.folder))
	}
	if w.World != nil {
		errs = append(errs, w.World.Close())
	}
	return errors.Join(errs...)
}

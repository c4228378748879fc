package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// proxy is a program that programs Services.
type proxy struct {
	name, program string
	mode          string // of kube-proxy; vmapd has none here
}

// world is a node with three pods, an API server and a proxy.
type world struct {
	*lab.World
	server     *apitest.Server
	folder     string
	kubeconfig string
	listeners  []net.Listener
	proxy      *lab.Cmd
	log        bytes.Buffer
}

// Pods listen on a port for each way to them: a connection to the same pod and port, from the same
// port of the client, would make NAT look for another port.
const (
	directPort = 8080 + iota
	othersPort
	allPort
	servicePort = 80
)

var (
	othersVIP = netip.MustParseAddrPort("172.30.0.10:80") //nolint:gochecknoglobals // a constant
	allVIP    = netip.MustParseAddrPort("172.30.0.11:80") //nolint:gochecknoglobals // a constant
)

func newWorld(ctx context.Context, services int) (w *world, err error) {
	w = &world{}
	if w.World, err = lab.New(ctx, lab.Config{Pods: 3}); err != nil {
		return w, err
	}
	for _, p := range w.Pods() {
		for _, port := range []int{directPort, othersPort, allPort} {
			if err := w.listen(p, port); err != nil {
				return w, err
			}
		}
	}
	if w.folder, err = os.MkdirTemp("", "vmapd-connections-"); err != nil {
		return w, err
	}
	err = w.Node.Do(func() error {
		w.server, err = apitest.NewServer(apitest.Options{JSONOnly: true})
		return err
	})
	if err != nil {
		return w, err
	}
	w.server.Set(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: lab.NodeName},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: lab.NodeIP4}}},
	})
	pods := []netip.Addr{netip.MustParseAddr(lab.FirstPodIP4)}
	for range 2 {
		pods = append(pods, pods[len(pods)-1].Next())
	}
	w.service("others", othersVIP.Addr(), othersPort, pods[1:]...)
	w.service("all", allVIP.Addr(), allPort, pods...)
	for i := range services {
		at := func(a byte, n int) netip.Addr {
			return netip.AddrFrom4([4]byte{a, 30 + byte(n>>16), 1 + byte(n>>8), byte(n)})
		}
		w.service("other-"+strconv.Itoa(i), at(172, i), othersPort, at(10, 3*i), at(10, 3*i+1), at(10, 3*i+2))
	}
	w.kubeconfig, err = w.server.Kubeconfig(w.folder, apitest.Form{})
	return w, err
}

// listen accepts connections in a pod.
func (w *world) listen(p *lab.Pod, port int) error {
	return p.Do(func() error {
		l, err := net.Listen("tcp4", ":"+strconv.Itoa(port))
		if err != nil {
			return err
		}
		w.listeners = append(w.listeners, l)
		go func() {
			for {
				c, err := l.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					_ = c.Close()
				}
			}
		}()
		return nil
	})
}

// service makes a Service and its endpoints, which are on this node.
func (w *world) service(name string, vip netip.Addr, port int32, pods ...netip.Addr) {
	w.server.Set(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: vip.String(), ClusterIPs: []string{vip.String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: servicePort}},
		},
	})
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("tcp"), Protocol: new(corev1.ProtocolTCP), Port: &port}},
	}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.String()}, NodeName: new(lab.NodeName), Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	w.server.Set(s)
}

// start starts the proxy, and waits until it has programmed the Services.
func (w *world) start(ctx context.Context, p proxy) error {
	args := []string{"--backend=nftables", "--cluster-cidr=" + lab.PodRange4, "--hostname-override=" + lab.NodeName, "--kubeconfig=" + w.kubeconfig, "--conntrack-max-per-core=0"}
	if p.mode != "" {
		conf := filepath.Join(w.folder, "config.conf")
		text := fmt.Sprintf("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: %s\nclusterCIDR: %s\n"+
			"hostnameOverride: %s\nclientConnection: {kubeconfig: %s}\nconntrack: {maxPerCore: 0, min: 0}\n", p.mode, lab.PodRange4, lab.NodeName, w.kubeconfig)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return err
		}
		args = []string{"--config=" + conf}
	}
	w.proxy = w.Node.Command(ctx, p.program, args...)
	w.proxy.Stdout, w.proxy.Stderr = &w.log, &w.log
	if err := w.proxy.Start(); err != nil {
		w.proxy = nil
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	// Another pod asks than the one that is measured: to connection tracking, an attempt before the rules were there is a
	// connection without a translation. For two minutes, the next one from the same port would belong to it. vmapd ends
	// such connections, kube-proxy leaves them.
	asks := w.Pods()[1]
	for _, vip := range []netip.AddrPort{othersVIP, allVIP} {
		for {
			if _, lost, err := w.connect(ctx, asks, 20*time.Millisecond, vip); err == nil && lost == 0 {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%v does not answer; the proxy's log:\n%s", vip, &w.log)
			}
		}
	}
	time.Sleep(3 * time.Second) // for the proxy to come to rest
	return nil
}

func (w *world) close() error {
	var errs []error
	if w.proxy != nil {
		_ = w.proxy.Cancel()
		_ = w.proxy.Wait() // it was killed
	}
	for _, l := range w.listeners {
		errs = append(errs, l.Close())
	}
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

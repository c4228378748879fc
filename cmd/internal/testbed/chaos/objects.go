package main

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// The Services are web, with the first two pods as endpoints, and probe, with one endpoint, which changes.
const (
	pods           = 5
	podPort        = 8080
	webNodePort    = 30080
	probeAtFirst   = 2
	probeElsewhere = 3
)

var (
	webVIP   = netip.MustParseAddrPort("172.30.0.10:80")       //nolint:gochecknoglobals // a constant
	webVIP6  = netip.MustParseAddrPort("[fd00:172:30::10]:80") //nolint:gochecknoglobals // a constant
	probeVIP = netip.MustParseAddrPort("172.30.0.11:80")       //nolint:gochecknoglobals // a constant
)

// setObjects writes all objects to the API server.
func (w *world) setObjects() {
	w.API.Set(bench.LabNode())
	web := service("web", webVIP.Addr(), webVIP6.Addr())
	web.Spec.Type = corev1.ServiceTypeNodePort
	for i := range web.Spec.Ports {
		web.Spec.Ports[i].NodePort = webNodePort
	}
	w.API.Set(web)
	w.setEndpoints(web, 0, 1)
	w.API.Set(probe())
	w.setProbe(probeAtFirst)
}

// setProbe makes a pod the endpoint of the Service probe.
func (w *world) setProbe(pod int) { w.setEndpoints(probe(), pod) }

func (w *world) setEndpoints(s *corev1.Service, pods ...int) {
	var endpoints []*lab.Pod
	for _, n := range pods {
		endpoints = append(endpoints, w.Pods()[n])
	}
	for _, slice := range bench.Slices(s, endpoints...) {
		w.API.Set(slice)
	}
}

func probe() *corev1.Service { return service("probe", probeVIP.Addr()) }

func service(name string, ips ...netip.Addr) *corev1.Service {
	both := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}
	return bench.Service(name, int32(webVIP.Port()), podPort, both, ips...)
}

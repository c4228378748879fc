package cluster

import (
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// service is a Service with its endpoints.
type service struct {
	index           int
	namespace, name string

	kind         corev1.ServiceType
	headless     bool
	externalHere bool // externalTrafficPolicy Local
	affinity     bool
	restricted   bool // loadBalancerSourceRanges
	hints        bool
	dual         bool
	ports        []corev1.ServicePort
	healthPort   int32

	pods   []*pod // oldest first
	slices [len(families)][]*slice
	made   int // slices so far, for their names
}

// plain reports whether clients on any node may reach a new pod at once.
func (s *service) plain() bool {
	return !s.headless && s.kind == corev1.ServiceTypeClusterIP && !s.hints && !s.dual && !s.affinity
}

// families returns the numbers of the families that the Service is in.
func (s *service) families() int {
	if s.dual {
		return len(families)
	}
	return 1
}

// nodePorts gives out the default range of node ports.
type nodePorts struct{ used int32 }

const firstNodePort, lastNodePort = 30_000, 32_767

func (p *nodePorts) next() int32 {
	p.used++
	return firstNodePort + p.used - 1
}

// left reports whether there are enough for any Service.
func (p *nodePorts) left() bool { return firstNodePort+p.used+3 <= lastNodePort }

func (c *Cluster) newService(i int, mixed bool, ports *nodePorts) *service {
	const perNamespace = 40
	s := &service{
		index: i, namespace: fmt.Sprintf("team-%d", i/perNamespace), name: fmt.Sprintf("service-%d", i),
		kind:  corev1.ServiceTypeClusterIP,
		ports: []corev1.ServicePort{servicePort("http", corev1.ProtocolTCP, 80, 8080)},
	}
	if mixed {
		c.vary(s, ports)
	}
	return s
}

// vary gives a Service uncommon settings.
func (c *Cluster) vary(s *service, ports *nodePorts) {
	one := func(share float64) bool { return c.rng.Float64() < share }
	switch roll := c.rng.Float64(); {
	case roll < 0.10:
		s.headless = true
	case roll < 0.15 && ports.left():
		s.kind = corev1.ServiceTypeNodePort
	case roll < 0.20 && ports.left():
		s.kind = corev1.ServiceTypeLoadBalancer
	}
	switch roll := c.rng.Float64(); {
	case roll < 0.03:
		s.ports = []corev1.ServicePort{
			servicePort("dns", corev1.ProtocolUDP, 53, 5353),
			servicePort("dns-tcp", corev1.ProtocolTCP, 53, 5353),
		}
	case roll < 0.25:
		s.ports = append(s.ports, servicePort("metrics", corev1.ProtocolTCP, 9090, 9102))
	}
	s.dual, s.hints, s.affinity = one(0.15), one(0.10), !s.headless && one(0.03)
	if s.kind == corev1.ServiceTypeClusterIP {
		return
	}
	s.externalHere = one(0.5)
	for i := range s.ports {
		s.ports[i].NodePort = ports.next()
	}
	if s.kind == corev1.ServiceTypeLoadBalancer {
		s.restricted = one(0.3)
		if s.externalHere {
			s.healthPort = ports.next()
		}
	}
}

func servicePort(name string, protocol corev1.Protocol, port, target int32) corev1.ServicePort {
	return corev1.ServicePort{
		Name: name, Protocol: protocol, Port: port, TargetPort: intstr.FromInt32(target),
	}
}

// service writes s as an API server has it.
func (c *Cluster) service(s *service) *corev1.Service {
	// Where two Services want the same, the older one wins.
	created := metav1.NewTime(c.epoch.Add(time.Duration(s.index-most) * time.Second))
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: s.name, UID: uid("5e", s.index), CreationTimestamp: created,
			Labels:        s.labels(),
			Annotations:   map[string]string{"meta.helm.sh/release-name": s.name, lastApplied: s.applied()},
			ManagedFields: managedFields("helm", serviceFields, created),
		},
		Spec: corev1.ServiceSpec{
			Type: s.kind, Ports: s.ports, SessionAffinity: corev1.ServiceAffinityNone,
			Selector:              map[string]string{"app.kubernetes.io/name": s.name, "app.kubernetes.io/instance": s.namespace},
			IPFamilyPolicy:        new(corev1.IPFamilyPolicySingleStack),
			IPFamilies:            append([]corev1.IPFamily(nil), families[:s.families()]...),
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
	if s.dual {
		o.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
	}
	s.addresses(&o.Spec)
	if s.affinity {
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10_800))}}
	}
	if s.kind != corev1.ServiceTypeClusterIP {
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if s.externalHere {
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if s.kind == corev1.ServiceTypeLoadBalancer {
		s.balance(o)
	}
	return o
}

func (s *service) addresses(spec *corev1.ServiceSpec) {
	spec.ClusterIP, spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	if s.headless {
		return
	}
	const first = 10 // as the API server keeps the first for itself and for DNS
	spec.ClusterIPs = nil
	for f := range s.families() {
		spec.ClusterIPs = append(spec.ClusterIPs, nth(serviceRanges[f], first+s.index).String())
	}
	spec.ClusterIP = spec.ClusterIPs[0]
}

// balance adds the status of the cloud's controller.
func (s *service) balance(o *corev1.Service) {
	o.Spec.AllocateLoadBalancerNodePorts = new(true)
	o.Spec.HealthCheckNodePort = s.healthPort
	if s.restricted {
		o.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "203.0.113.0/25"}
	}
	o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{
		IP: nth(netip.MustParseAddr("198.18.0.0"), s.index).String(), IPMode: new(corev1.LoadBalancerIPModeVIP),
	}}
}

// serviceRanges are where cluster IPs begin, by family.
var serviceRanges = [len(families)]netip.Addr{netip.MustParseAddr("10.96.0.0"), netip.MustParseAddr("fd00:10:96::")}

// nth returns the address n after a.
func nth(a netip.Addr, n int) netip.Addr {
	b := a.As16()
	for i := len(b) - 1; n > 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	out := netip.AddrFrom16(b)
	if a.Is4() {
		return out.Unmap()
	}
	return out
}

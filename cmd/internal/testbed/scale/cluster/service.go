package cluster

import (
	"encoding/binary"
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

	pods   []*pod // oldest first
	slices []*slice
	made   int // slices so far, for their names
}

func newService(i int) *service {
	const perNamespace = 40
	return &service{index: i, namespace: fmt.Sprintf("team-%d", i/perNamespace), name: fmt.Sprintf("service-%d", i)}
}

const portName, portNumber, targetPort = "http", 80, 8080

// service writes s as an API server has it.
func (c *Cluster) service(s *service) *corev1.Service {
	const first = 10 // as the API server keeps the first for itself and for DNS
	created := metav1.NewTime(c.epoch.Add(time.Duration(s.index-most) * time.Second))
	vip := nth(serviceRange, first+s.index).String()
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: s.name, UID: uid("5e", s.index), CreationTimestamp: created,
			Labels: s.labels(), Annotations: s.annotations(), ManagedFields: managedFields("helm", 600, created),
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: vip, ClusterIPs: []string{vip},
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{
				Name: portName, Protocol: corev1.ProtocolTCP, Port: portNumber, TargetPort: intstr.FromInt32(targetPort),
			}},
			Selector: map[string]string{
				"app.kubernetes.io/name": s.name, "app.kubernetes.io/instance": s.namespace,
			},
			IPFamilyPolicy:        new(corev1.IPFamilyPolicySingleStack),
			IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
}

// Where cluster IPs and pods' addresses begin.
//
//nolint:gochecknoglobals // constants
var serviceRange, podRange = netip.MustParseAddr("10.96.0.0"), netip.MustParseAddr("10.128.0.1")

// nth returns the address n after a.
func nth(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

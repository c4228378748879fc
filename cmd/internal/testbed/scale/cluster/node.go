package cluster

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/model"
)

// NodeAddress is the address of the Node NodeName.
var NodeAddress = netip.MustParseAddr("192.168.0.2") //nolint:gochecknoglobals // a constant

func nodeName(n int) string { return fmt.Sprintf("node-%d", n) }

func zone(node int) string { return fmt.Sprintf("eu-west-1%c", 'a'+node%3) }

// node writes the Node of NodeName: half of a real one is the images that it has.
func (c *Cluster) node() *corev1.Node {
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: NodeName, UID: uid("0d", 0), CreationTimestamp: metav1.NewTime(c.epoch),
			Labels: map[string]string{
				model.LabelZone: zone(0), corev1.LabelHostname: NodeName,
				corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			},
			Annotations:   map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
			ManagedFields: managedFields("kubelet", 300, metav1.NewTime(c.epoch)),
		},
		Spec: corev1.NodeSpec{PodCIDR: PodCIDR, PodCIDRs: []string{PodCIDR}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: NodeAddress.String()},
				{Type: corev1.NodeHostName, Address: NodeName},
			},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				Reason: "KubeletReady", Message: "kubelet is posting ready status",
				LastHeartbeatTime: metav1.NewTime(c.epoch), LastTransitionTime: metav1.NewTime(c.epoch),
			}},
		},
	}
	const images = 50
	for i := range images {
		o.Status.Images = append(o.Status.Images, corev1.ContainerImage{
			Names: []string{
				fmt.Sprintf("registry.example.com/team-%d/app@sha256:%064x", i, i),
				fmt.Sprintf("registry.example.com/team-%d/app:v1.%d.0", i, i),
			},
			SizeBytes: int64(i+1) << 24,
		})
	}
	return o
}

func serviceCIDR() *networkingv1.ServiceCIDR {
	const width = 12 // as wide as the API server allows: there are up to a million Services
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", UID: uid("c1", 0)},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{netip.PrefixFrom(serviceRange, width).String()}},
	}
}

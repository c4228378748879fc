package kube

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workload is the part that Deployments, StatefulSets, DaemonSets and ReplicaSets have in common: the
// template of their pods. It stands for the types of apps/v1, whose package would bring much else.
type Workload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec WorkloadSpec `json:"spec"`
}

// WorkloadSpec selects pods, and is their template.
type WorkloadSpec struct {
	Selector *metav1.LabelSelector  `json:"selector"`
	Template corev1.PodTemplateSpec `json:"template"`
}

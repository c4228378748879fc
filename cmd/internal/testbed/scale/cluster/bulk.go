package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Fields that no proxy reads. They are a large part of real objects, which are sent, decoded and
// discarded.

const lastApplied = corev1.LastAppliedConfigAnnotation

// labels are those of a Helm chart. The controller copies them to slices.
func (s *service) labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": s.name, "app.kubernetes.io/instance": s.namespace,
		"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "1.17.3",
		"helm.sh/chart": s.name + "-4.2.1",
	}
}

// applied resembles the annotation of kubectl apply.
func (s *service) applied() string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"annotations":{},"labels":{`+
		`"app.kubernetes.io/instance":%q,"app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/name":%q,`+
		`"app.kubernetes.io/version":"1.17.3","helm.sh/chart":"%s-4.2.1"},"name":%[2]q,"namespace":%[1]q},"spec":{"ports":[`+
		`{"name":"http","port":80,"protocol":"TCP","targetPort":8080}],"selector":{"app.kubernetes.io/instance":%[1]q,`+
		`"app.kubernetes.io/name":%[2]q},"type":%[4]q}}`+"\n", s.namespace, s.name, s.name, s.kind)
}

const serviceFields = `{"f:metadata":{"f:annotations":{".":{},"f:meta.helm.sh/release-name":{},` +
	`"f:kubectl.kubernetes.io/last-applied-configuration":{}},"f:labels":{".":{},"f:app.kubernetes.io/instance":{},` +
	`"f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/version":{},"f:helm.sh/chart":{}}},` +
	`"f:spec":{"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},` +
	`"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}`

const sliceFields = `{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:annotations":{".":{},` +
	`"f:endpoints.kubernetes.io/last-change-trigger-time":{}},"f:generateName":{},"f:labels":{".":{},` +
	`"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{},` +
	`"f:app.kubernetes.io/version":{},"f:endpointslice.kubernetes.io/managed-by":{},"f:helm.sh/chart":{},` +
	`"f:kubernetes.io/service-name":{}},"f:ownerReferences":{".":{},` +
	`"k:{\"uid\":\"5e000000-0000-4000-8000-000000000000\"}":{}}},"f:ports":{}}`

const nodeFields = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:lastHeartbeatTime":{},` +
	`"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{}}},"f:images":{}}}`

func managedFields(manager, fields string, at metav1.Time) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}}
}

// uid makes an identifier of the n-th object of a kind, which is two hexadecimal digits.
func uid(kind string, n int) types.UID {
	return types.UID(fmt.Sprintf("%s%06x-0000-4000-8000-%012x", kind, n&0xffffff, n))
}

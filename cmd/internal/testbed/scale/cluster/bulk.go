package cluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Fields that no proxy reads. They are a large part of real objects, which are sent, decoded and
// discarded.

// labels are those of a Helm chart. The controller copies them to slices.
func (s *service) labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": s.name, "app.kubernetes.io/instance": s.namespace,
		"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "1.17.3",
		"helm.sh/chart": s.name + "-4.2.1",
	}
}

// annotations are those of a Helm chart, and one that is as long as that of kubectl apply.
func (s *service) annotations() map[string]string {
	const applied = `{"kind":"Service","metadata":{"name":%q,"namespace":%q},"spec":%s}`
	return map[string]string{
		"meta.helm.sh/release-name":        s.name,
		corev1.LastAppliedConfigAnnotation: fmt.Sprintf(applied, s.name, s.namespace, fieldsOf(400)),
	}
}

// fieldsOf is a list of fields of a length, as those of managers are.
func fieldsOf(length int) string {
	const one = `"f:app.kubernetes.io/name":{},`
	return "{" + strings.Repeat(one, length/len(one)) + `"f:ports":{}}`
}

func managedFields(manager string, length int, at metav1.Time) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fieldsOf(length)),
	}}
}

// uid makes an identifier of the n-th object of a kind, which is two hexadecimal digits.
func uid(kind string, n int) types.UID {
	return types.UID(fmt.Sprintf("%s%06x-0000-4000-8000-%012x", kind, n&0xffffff, n))
}

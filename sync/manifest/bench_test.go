package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// sliceObjects returns n EndpointSlices with 100 endpoints each, as an API server has
// them.
func sliceObjects(n int) []discoveryv1.EndpointSlice {
	out := make([]discoveryv1.EndpointSlice, n)
	for i := range out {
		s := &out[i]
		s.APIVersion, s.Kind = "discovery.k8s.io/v1", "EndpointSlice"
		s.ObjectMeta = metav1.ObjectMeta{
			Namespace: "ns1", Name: fmt.Sprintf("svc%d-abcde", i), UID: "b5c5d9a8-5e12-4c33-8d5c-000000000000",
			Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("svc%d", i)},
		}
		s.AddressType = discoveryv1.AddressTypeIPv4
		s.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}}
		for j := range 100 {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, j+1)},
				Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
				NodeName:   new(fmt.Sprintf("node%d", j)),
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "ns1", Name: fmt.Sprintf("pod-%d-%d", i, j), UID: "b5c5d9a8-5e12-4c33-8d5c-000000000000"},
			})
		}
	}
	return out
}

func BenchmarkParse(b *testing.B) {
	slices := sliceObjects(100) // 10,000 endpoints
	var yml, js bytes.Buffer
	for _, s := range slices {
		y, err := yaml.Marshal(s)
		if err != nil {
			b.Fatal(err)
		}
		yml.WriteString("---\n")
		yml.Write(y)
		j, err := json.Marshal(s)
		if err != nil {
			b.Fatal(err)
		}
		js.Write(append(j, '\n'))
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{"yaml", yml.Bytes()}, {"json", js.Bytes()}} {
		b.Run(f.name+"/endpoints-10000", func(b *testing.B) {
			b.SetBytes(int64(len(f.data)))
			b.ReportAllocs()
			for b.Loop() {
				if o, errs := Parse("in", f.data); len(errs) > 0 || o.Len() != len(slices) {
					b.Fatal(o.Len(), errs)
				}
			}
		})
	}
}

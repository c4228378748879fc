package slim

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// BenchmarkObject is from the bytes of an object to what the builder gets, as JSON and protobuf, by the
// standard decoder and by this package.
func BenchmarkObject(b *testing.B) {
	for _, what := range []struct {
		name string
		runtime.Object
	}{{"service", service()}, {"slice-10", plain(10)}, {"slice-100", plain(100)}} {
		for _, format := range formats {
			data := encode(b, what.Object, format)
			name := what.name + "/" + format[len("application/"):]
			b.Run(name+"/standard", func(b *testing.B) {
				d := serializer(b, standard, format)
				b.ReportAllocs()
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					o, _, err := d.Decode(data, nil, nil)
					if err != nil {
						b.Fatal(err)
					}
					From(o)
				}
			})
			b.Run(name+"/slim", func(b *testing.B) {
				d := serializer(b, ours, format)
				b.ReportAllocs()
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					o, _, err := d.Decode(data, nil, nil)
					if err != nil {
						b.Fatal(err)
					}
					if s, ok := o.(*EndpointSlice); ok {
						s.Release()
					}
				}
			})
		}
	}
}

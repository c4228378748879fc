package slim

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// BenchmarkObject is from the bytes of an object to what the builder gets, by the
// standard decoder and by this package.
func BenchmarkObject(b *testing.B) {
	for _, what := range []struct {
		name string
		runtime.Object
	}{{"service", service()}, {"slice-10", plain(10)}, {"slice-100", plain(100)}} {
		data := encode(b, what.Object, runtime.ContentTypeProtobuf)
		b.Run(what.name+"/standard", func(b *testing.B) {
			d := serializer(b, standard, runtime.ContentTypeProtobuf)
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
		b.Run(what.name+"/slim", func(b *testing.B) {
			d := serializer(b, ours, runtime.ContentTypeProtobuf)
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

package wire

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// repeated is an endless watch of the same event.
type repeated struct {
	frame []byte
	at    int
}

func (r *repeated) Read(to []byte) (int, error) {
	n := copy(to, r.frame[r.at:])
	r.at = (r.at + n) % len(r.frame)
	return n, nil
}

var serializersToCompare = []struct {
	name string
	runtime.NegotiatedSerializer
}{{"standard", standard}, {"wire", ours}}

// BenchmarkWatch is from the bytes of an event to its object, which is garbage at once.
func BenchmarkWatch(b *testing.B) {
	for _, what := range []struct {
		name string
		runtime.Object
	}{{"service", service()}, {"slice-1", slice(1)}, {"slice-100", slice(100)}} {
		frame := frames(b, event(b, watch.Added, what.Object))
		for _, by := range serializersToCompare {
			b.Run(what.name+"/"+by.name, func(b *testing.B) {
				w := newWatch(b, by.NegotiatedSerializer, &repeated{frame: frame})
				b.ReportAllocs()
				b.SetBytes(int64(len(frame)))
				for b.Loop() {
					if _, _, err := w.Decode(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkList is the answer of a server that knows no streaming lists, of 1,000 Services.
func BenchmarkList(b *testing.B) {
	list := &corev1.ServiceList{}
	for range 1000 {
		list.Items = append(list.Items, *service())
	}
	data := encode(b, list)
	for _, by := range serializersToCompare {
		b.Run(by.name, func(b *testing.B) {
			d := protobuf(b, by.NegotiatedSerializer)
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, _, err := d.Decode(data, nil, &corev1.ServiceList{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package kernel

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// BenchmarkOnlyUserOfFeatures makes and deletes in turns a Service that is the only one with session affinity, source
// ranges and a node port, beside one without these: the difference is what the rules of features cost.
func BenchmarkOnlyUserOfFeatures(b *testing.B) {
	plain := modeltest.NewService("tenant/x").On("172.30.255.1").TCP("", 80)
	for name, s := range map[string]modeltest.Service{
		"plain":    plain,
		"features": modeltest.NewService("tenant/x").On("172.30.255.1").TCP("", 80).NodePort(31999).Sticky(10800).LoadBalancer("192.168.98.77").Ranges("198.18.0.0/15"),
	} {
		b.Run(name, func(b *testing.B) {
			forSizes(b, func(b *testing.B, _ benchSize, builder *model.Builder) {
				n := newNetNS(b)
				backend := open(b, n)
				apply(b, backend, builder.Snapshot())
				i := 0
				for b.Loop() {
					if i++; i%2 == 1 {
						builder.SetService(s.Service)
					} else {
						builder.DeleteService(s.NamespacedName)
					}
					apply(b, backend, builder.Snapshot())
				}
			})
		})
	}
}

package batch_test

import (
	"fmt"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// One endpoint is replaced by another, in its slot. Clients that the Service's session
// affinity sent to it are forgotten, and until that is done, kept from it.
func ExampleDiff() {
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080)
	b := modeltest.Builder(modeltest.Config(),
		modeltest.NewService("ns1/web").On("172.30.0.41").Sticky(3600).TCP("http", 80),
		slice.Ready("10.0.0.2", "10.0.0.3", "10.0.0.4"))
	have := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))

	slice.Ready("10.0.0.2", "10.0.0.4", "10.0.0.5").Set(b)
	want := compile.Options{}.Compile(have, b.Snapshot().Family(model.IPv4))
	fmt.Print(batch.Diff(have, want))
	// Output:
	// delete element ip vmapd affinity-endpoints { 1701734803 . 3322671087 . 10.0.0.3 . 8080 comment "ns1/web:http" }
	// delete element ip vmapd endpoints { 172.30.0.41 . tcp . 80 . 1 : 10.0.0.3 . 8080 }
	// add element ip vmapd affinity-endpoints { 1701734803 . 3322671087 . 10.0.0.5 . 8080 comment "ns1/web:http" }
	// add element ip vmapd endpoints { 172.30.0.41 . tcp . 80 . 1 : 10.0.0.5 . 8080 }
	// add element ip vmapd gone-endpoints { 10.0.0.3 . 8080 }
	// # purge map ip vmapd affinity-ns1/web/tcp/http
}

package kernel

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// The table is read when the kernel refuses a service port. From then on, other changes cost as much as always, and what
// is not needed any more is deleted.
func TestChangesBesideARefusedService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &nftfake.Kernel{}
		b := openFake(t, k)
		builder := model.NewBuilder(model.Config{})
		modeltest.Feed(builder, modeltest.Cluster(5, 3))
		sticky := modeltest.NewService("ns1/sticky").On("172.30.0.41").TCP("http", 80).Sticky(3600)
		sticky.Set(builder)
		modeltest.NewSlice("ns1/sticky-1", "sticky").TCP("http", 8080).Ready("10.0.0.1", "10.0.0.2").Set(builder)
		apply(t, b, builder.Snapshot())
		modeltest.NewService("ns1/bad").On("172.30.0.99").TCP("http", 80).Set(builder)
		first := builder.Snapshot()
		bad, _ := first.Family(model.IPv4).ServicePort(modeltest.PortName("ns1/bad", "http", model.TCP))
		read := 0
		refuses := func(r nftfake.Request) nftfake.Fault {
			switch {
			case r.Type == unix.NFT_MSG_GETSET || r.Type == unix.NFT_MSG_GETRULE:
				read++
			case r.Type == unix.NFT_MSG_NEWSETELEM && bytes.Contains(r.Data, frontendKey(bad)):
				return nftfake.Full
			}
			return nftfake.NoFault
		}
		k.Fail(refuses)
		applied := func(what string, s *model.Snapshot, reads bool) {
			t.Helper()
			read = 0
			_, refused := model.Failures(b.Apply(t.Context(), s))
			if !refused[model.IPv4][bad.Name] || len(refused[model.IPv4]) != 1 || b.Stats(model.IPv4).Rejected != 1 {
				t.Errorf("%s: the kernel refuses %v, want %v", what, refused, bad.Name)
			}
			if got := read > 0; got != reads {
				t.Errorf("%s: the table is read: %v, want %v", what, got, reads)
			}
			_, got := contentsOf(t, b.conn, s.Family(model.IPv4))
			for sp := range s.Family(model.IPv4).ServicePorts() {
				if _, ok := got.Elements[nft.ServiceIPs][string(frontendKey(sp))]; ok != (sp.Name != bad.Name) {
					t.Errorf("%s: %v is programmed: %v", what, sp.Name, ok)
				}
			}
		}
		applied("refused", first, true)
		modeltest.ClusterService(2).Delete(builder)
		sticky.Delete(builder)
		applied("others are deleted", builder.Snapshot(), false)
		modeltest.NewService("ns1/new").On("172.30.0.42").TCP("http", 80).Set(builder)
		applied("another is new", builder.Snapshot(), false)
		if listing := fakeContents(t, k, builder.Snapshot())[model.IPv4]; strings.Contains(fmt.Sprint(listing), "sticky") {
			t.Errorf("the deleted Service has chains or sets: %v", listing)
		}
		last := builder.Snapshot()
		applied("a retry", last, true)
		time.Sleep(time.Hour)
		modeltest.NewService("ns1/newer").On("172.30.0.43").TCP("http", 80).Set(builder)
		applied("a change after a long time", builder.Snapshot(), true)
		modeltest.NewService("ns1/bad").On("172.30.0.99").TCP("http", 81).Set(builder)
		k.Fail(nil)
		apply(t, b, builder.Snapshot())
		mustMatchIn(t, fakeDialer(k), builder.Snapshot())
	})
}

package compile_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// While the kernel commits a batch, a packet can hold the verdict from before it and find all
// slots gone. It must not leave with the Service's address as its destination.
func TestAPacketWithoutAnySlotGoesNowhere(t *testing.T) {
	counts := []int{1, 2, 3, 5, 9, 40}
	for _, algorithm := range []string{"random", "maglev", "maglev-port"} {
		for _, external := range []string{"Cluster", "Local"} {
			b := model.NewBuilder(modeltest.Config())
			modeltest.OurNode().Set(b)
			for i, n := range counts {
				name := fmt.Sprintf("ns1/web-%d", n)
				modeltest.NewService(name).Typed("LoadBalancer").On(fmt.Sprintf("172.30.0.%d", n)).
					External(fmt.Sprintf("192.168.99.%d", n)).Policies(external, external).Algorithm(algorithm).
					TCP("http", 80).NodePort(int32(30000 + i)).Set(b)
				slice := modeltest.NewSlice(name, fmt.Sprintf("web-%d", n)).TCP("http", 8080)
				for e := range n {
					slice = slice.Local(fmt.Sprintf("10.0.0.%d", e+2))
				}
				slice.Set(b)
			}
			s := b.Snapshot().Family(model.IPv4)
			table := compile.Options{}.Compile(nil, s).Table()
			for _, set := range table.Sets {
				if nft.DeclarationOf(set.Name).HasSlots() {
					delete(table.Elements, set.Name)
				}
			}
			var connections []model.Connection
			for sp := range s.ServicePorts() {
				for _, fe := range sp.Frontends {
					to := fe.VIP.Addr
					if fe.Kind == model.NodePort {
						to = netip.MustParseAddr(modeltest.NodeIP4)
					}
					for _, from := range []string{"203.0.113.9", "10.0.0.2", modeltest.NodeIP4} {
						connections = append(connections, model.Connection{
							Source: netip.MustParseAddr(from), Node: from == modeltest.NodeIP4,
							Dest: netip.AddrPortFrom(to, fe.VIP.Port), Protocol: model.TCP,
						})
					}
				}
			}
			sim, err := nftsim.New(table, s.NodeAddrs...)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range connections {
				if o, err := sim.Run(c); err != nil || o.Verdict == model.Forwarded {
					t.Errorf("%s, %s: %+v goes to %v: %v", algorithm, external, c, o.To, err)
				}
			}
		}
	}
}

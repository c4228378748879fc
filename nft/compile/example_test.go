package compile_test

import (
	"fmt"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// A Service is elements of maps that all Services share. Its chain depends on the number of
// endpoints alone.
func Example() {
	s := modeltest.Snapshot(modeltest.Config(),
		modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2", "10.0.0.3", "10.0.0.4"))
	ruleset := compile.Options{}.Compile(nil, s.Family(model.IPv4))

	for _, name := range []string{nft.ServiceIPs, nft.Endpoints} {
		fmt.Println("map", name)
		for unit := range ruleset.Units() {
			unit.Elements(func(set string, e nft.Element) {
				if set == name {
					fmt.Println("  ", nft.DeclarationOf(set).Text(model.IPv4, e))
				}
			})
		}
	}
	for _, c := range ruleset.Chains {
		if c.Name == "endpoints-3-to-4" {
			fmt.Println("chain", c.Name)
			for _, r := range c.Rules[1:] {
				fmt.Println("  ", r.Text(model.IPv4))
			}
		}
	}
	// Output:
	// map service-ips
	//    172.30.0.41 . tcp . 80 comment "ns1/web:http" : goto endpoints-3-to-4
	// map endpoints
	//    172.30.0.41 . tcp . 80 . 0 : 10.0.0.2 . 8080
	//    172.30.0.41 . tcp . 80 . 1 : 10.0.0.3 . 8080
	//    172.30.0.41 . tcp . 80 . 2 : 10.0.0.4 . 8080
	// chain endpoints-3-to-4
	//    dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 4 map @endpoints
	//    dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints
	//    dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 1 map @endpoints
	//    drop
}

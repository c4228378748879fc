package preflight

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
)

// large is a cluster of n Services with two endpoints each, and kube-proxy's rules for it.
func large(b *testing.B, n int, mode string) Input {
	b.Helper()
	var saved, chains, ips, table strings.Builder
	in := Input{Backend: "nftables", Config: model.Config{NodeName: "node-1", NodePortAddresses: model.NodePortAddresses{All: true}}}
	in.HostAddresses = []netip.Addr{netip.MustParseAddr("192.168.0.2")}
	for i := range n {
		ip := fmt.Sprintf("172.30.%d.%d", i/250, i%250+1)
		ends := [2]string{fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)}
		name := model.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("s%d", i)}
		in.Objects.Services = append(in.Objects.Services, model.Service{NamespacedName: name, Type: "ClusterIP", ClusterIPs: []string{ip}, Ports: []model.Port{{Port: 80}}})
		port, empty := int32(8080), ""
		in.Objects.EndpointSlices = append(in.Objects.EndpointSlices, model.EndpointSlice{
			NamespacedName: name, Labels: map[string]string{model.LabelServiceName: name.Name}, AddressType: "IPv4",
			Ports:     []model.SlicePort{{Name: &empty, Port: &port}},
			Endpoints: []model.SliceEndpoint{{Addresses: ends[:1], NodeName: "node-1"}, {Addresses: ends[1:], NodeName: "node-2"}},
		})
		fmt.Fprintf(&chains, ":KUBE-SVC-%d - [0:0]\n:KUBE-SEP-%d-0 - [0:0]\n:KUBE-SEP-%d-1 - [0:0]\n", i, i, i)
		fmt.Fprintf(&saved, "-A KUBE-SERVICES -d %s/32 -p tcp -m comment --comment \"%v cluster IP\" -m tcp --dport 80 -j KUBE-SVC-%d\n", ip, name, i)
		fmt.Fprintf(&saved, "-A KUBE-SVC-%d -m statistic --mode random --probability 0.5 -j KUBE-SEP-%d-0\n-A KUBE-SVC-%d -j KUBE-SEP-%d-1\n", i, i, i, i)
		fmt.Fprintf(&ips, "%s . tcp . 80 : goto service-AAAAAAAA-%v/tcp/,\n", ip, name)
		fmt.Fprintf(&table, "chain service-AAAAAAAA-%v/tcp/ {\nmeta l4proto tcp dnat ip to numgen random mod 2 map { 0 : %s . 8080, 1 : %s . 8080 }\n}\n", name, ends[0], ends[1])
		for k, end := range ends {
			fmt.Fprintf(&saved, "-A KUBE-SEP-%d-%d -p tcp -m tcp -j DNAT --to-destination %s:8080\n", i, k, end)
		}
	}
	var err error
	if mode == "iptables" {
		in.Before[model.IPv4], err = ReadIPTables(model.IPv4, "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n"+chains.String()+
			"-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n"+
			saved.String()+"COMMIT\n")
	} else {
		in.Before[model.IPv4], err = ReadNFT(model.IPv4, "table ip kube-proxy {\nmap service-ips {\ntype ipv4_addr . inet_proto . inet_service : verdict\nelements = { "+ips.String()+" }\n}\n"+
			"chain pre {\ntype nat hook prerouting priority dstnat; policy accept;\nip daddr . meta l4proto . th dport vmap @service-ips\n}\n"+
			"chain out {\ntype nat hook output priority -100; policy accept;\nip daddr . meta l4proto . th dport vmap @service-ips\n}\n"+table.String()+"}\n")
	}
	if err != nil || in.Before[model.IPv4] == nil {
		b.Fatalf("no rules: %v", err)
	}
	return in
}

func BenchmarkCompare(b *testing.B) {
	for _, mode := range []string{"iptables", "nftables"} {
		for _, n := range []int{1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", mode, n), func(b *testing.B) {
				in := large(b, n, mode)
				for b.Loop() {
					r, err := Compare(in)
					if err != nil || r.Services != n || len(r.Unread) > 0 {
						b.Fatalf("%v %+v", err, r.Unread)
					}
				}
			})
		}
	}
}

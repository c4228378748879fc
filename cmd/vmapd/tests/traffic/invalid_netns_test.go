package traffic

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

const strayCount = 8

// strays sends segments that are far outside a connection's window, from the pod's end,
// and returns from where they reach the client. Connection tracking forgives those ahead
// of the window, so they are all around the circle of sequence numbers: one is behind.
func strays(t *testing.T, p *vmapdtest.Plane, pod *lab.Pod, from, client netip.AddrPort) map[netip.AddrPort]int {
	t.Helper()
	sniffer, raw := sniff(t, p.Client, client.Addr()), dialRaw(t, pod.Namespace, from.Addr(), client.Addr())
	const ack, end = 0x18, "the last"
	var all []segment
	for i := range strayCount {
		all = append(all, segment{from, client, uint32(i)<<29 + 12345, uint32(i)<<29 + 54321, ack, fmt.Sprintf("stray %d",
			i)})
	}
	// To a port of nobody's, by the same way: when it is there, all others are, too.
	all = append(all, segment{
		from: netip.AddrPortFrom(from.Addr(), 7), to: netip.AddrPortFrom(client.Addr(), 7),
		flags: 2, payload: end,
	})
	for _, s := range all {
		if _, err := raw.Write(s.marshal()); err != nil {
			t.Fatal(err)
		}
	}
	heard := map[netip.AddrPort]int{}
	for {
		switch from, payload := next(t, sniffer); {
		case payload == end:
			return heard
		case strings.HasPrefix(payload, "stray"):
			heard[from]++
		}
	}
}

func TestStraysOfServicesAreDropped(t *testing.T) {
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop invalid %v", drop), func(t *testing.T) {
			c := vmapdtest.LabConfig()
			c.DropInvalid = drop
			p := vmapdtest.NewPlane(t, 1, c, 8080)
			for _, name := range []string{"tcp_be_liberal", "checksum"} { // strays have no checksum
				if err := p.Node.Sysctl("net/netfilter/nf_conntrack_"+name, "0"); err != nil {
					t.Fatal(err)
				}
			}
			// Local: masqueraded connections have another address at the pod's end.
			p.Set(t, append(vmapdtest.WebSlices([]int{1}), vmapdtest.Web().Policies("Cluster", "Local"))...)
			pod := p.Pods()[0]
			const direct = 8081 // of no Service
			if _, err := pod.Serve(direct); err != nil {
				t.Fatal(err)
			}
			for _, f := range model.Families {
				addr := modeltest.Pod(f, 0)
				for _, tt := range []struct {
					name     string
					to, from netip.AddrPort
					dropped  bool
				}{
					{"of a Service", vmapdtest.Frontends(f)[1], netip.AddrPortFrom(addr, 8080), drop},
					{"of no Service", netip.AddrPortFrom(addr, direct), netip.AddrPortFrom(addr, direct), false},
				} {
					t.Run(fmt.Sprintf("%v %s", f, tt.name), func(t *testing.T) {
						conn, err := p.Client.Dial(t.Context(), "tcp", tt.to)
						if err != nil {
							t.Fatal(err)
						}
						defer conn.Close()
						before, err := conn.Ask(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						heard := strays(t, p, pod, tt.from, conn.Local())
						t.Logf("heard from %v", heard)
						got := heard[tt.from]
						if (got == 0) != tt.dropped || tt.to == tt.from && got != strayCount {
							t.Errorf("%d of %d strays reached the client with the pod's address; dropped should be %v", got, strayCount,
								tt.dropped)
						}
						if !drop {
							return // what became of the connection is why there is the option
						}
						after, err := conn.Ask(t.Context())
						if err != nil || after != before {
							t.Errorf("the connection is broken: %+v, %v", after, err)
						}
					})
				}
			}
		})
	}
}

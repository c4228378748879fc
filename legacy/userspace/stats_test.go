package userspace

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

func TestStats(t *testing.T) {
	inBothFamilies(t, func(t *testing.T, f model.Family) {
		r, port := newRig(t), freePort(t)
		other := model.IPv4 + model.IPv6 - f
		check := func(want Stats) {
			t.Helper()
			got := r.Stats()
			if diff := cmp.Diff(want, got[f]); diff != "" {
				t.Errorf("%v (-want +got):\n%s", f, diff)
			}
			if got[other].Accepted != 0 {
				t.Errorf("%v: %+v, want no connection", other, got[other])
			}
		}
		check(Stats{})
		taken, err := net.Listen("tcp", nodePort(f, port))
		if err != nil {
			t.Fatal(err)
		}
		tcp, udp := r.pod(0, tcpServer(t, f, echo('a'))), r.pod(1, udpServer(t, f, 'b'))
		r.builder.SetService(web("TCP", port).Service)
		r.builder.SetEndpointSlice(slice(f, "TCP", tcp).EndpointSlice)
		_ = r.Apply(t.Context(), r.builder.Snapshot())
		check(Stats{Missing: 1, Failures: 1})
		hangUp(taken)
		r.apply()
		check(Stats{Listeners: 1, Failures: 1})
		whoOnce(t, nodePort(f, port))
		whoOnce(t, nodePort(f, port))
		check(Stats{Listeners: 1, Failures: 1, Accepted: 2})

		r.set(web("UDP", port), slice(f, "UDP", udp))
		c := dialUDP(t, nodePort(f, port))
		ask(t, c, "1")
		ask(t, c, "2")
		check(Stats{Listeners: 1, Failures: 1, Accepted: 3})
		r.builder.DeleteService(web("UDP", port).NamespacedName)
		r.apply()
		check(Stats{Failures: 1, Accepted: 3})
	})
}

package traffic

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
)

// A cluster IP answers to no ping: it says at once that it is unreachable, from wherever
// it is asked, rather than letting the packet wander off by the default route.
func TestPingOfAClusterIPIsRefused(t *testing.T) {
	w := labtest.New(t)
	p := vmapdtest.StartDemo(t, w.Node)
	for _, to := range []string{"172.30.0.10", "fd00:172:30::10"} {
		for _, from := range []*lab.Namespace{w.Client, w.Node, w.Pods()[0].Namespace} {
			t.Run(fmt.Sprintf("%s from %s", to, from.Name()), func(t *testing.T) {
				ping(t, from, netip.MustParseAddr(to))
			})
		}
	}
	vmapdtest.Stop(t, p)
}

// ping sends an echo request and waits for the error about it.
func ping(t *testing.T, from *lab.Namespace, to netip.Addr) {
	t.Helper()
	network, request := "ip4:icmp", []byte{8, 0, 0, 0, 0, 1, 0, 1}
	wantType, wantCode := byte(3), byte(3) // destination unreachable: port
	if model.FamilyOf(to) == model.IPv6 {
		network, request[0] = "ip6:ipv6-icmp", 128
		wantType, wantCode = 1, 4
	} else {
		const sum = 0xffff - 0x0800 - 1 - 1 // of a request that is zero but for type, id and number
		request[2], request[3] = sum>>8, sum&0xff
	}
	var conn net.PacketConn
	if err := from.Do(func() (err error) {
		conn, err = net.ListenPacket(network, "")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answer := make([]byte, 1500)
	for range 3 { // the kernel limits how many errors it sends a second
		_, err := conn.WriteTo(request, &net.IPAddr{IP: to.AsSlice()})
		if err != nil && lab.FailureOf(err) == lab.Refused {
			return
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		for {
			n, _, err := conn.ReadFrom(answer)
			if err != nil {
				break
			}
			if n >= 2 && (answer[0] == 0 || answer[0] == 129) {
				t.Fatalf("somebody answered: % x", answer[:n])
			}
			if n >= 2 && answer[0] == wantType && answer[1] == wantCode {
				return
			}
		}
	}
	t.Errorf("nobody said that %v is unreachable", to)
}

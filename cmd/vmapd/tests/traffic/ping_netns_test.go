package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// ping sends an echo request. The error about it is that of the connected socket.
func ping(t *testing.T, from *lab.Namespace, to netip.Addr) {
	t.Helper()
	network, request := "ip4:icmp", []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1} // with its checksum
	if model.FamilyOf(to) == model.IPv6 {
		network, request = "ip6:ipv6-icmp", []byte{128, 0, 0, 0, 0, 1, 0, 1} // the kernel adds it
	}
	conn, err := from.DialContext(t.Context(), network, to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range 3 { // the kernel limits how many errors it sends a second
		n := 0
		if _, err = conn.Write(request); err == nil || errors.Is(err, unix.EPERM) { // which a rule of the output path gives
			if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err = conn.Read(make([]byte, 1500))
		}
		if err == nil {
			t.Fatalf("%v answers with %d bytes", to, n)
		}
		if lab.FailureOf(err) == lab.Refused {
			return
		}
	}
	t.Errorf("nobody said that %v is unreachable: %v", to, err)
}

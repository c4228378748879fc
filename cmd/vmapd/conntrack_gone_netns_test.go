package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// foreignDNAT translates datagrams of the client's second address before anybody else does, as
// a CNI plugin's hostPort may: to pod-3.
const foreignDNAT = `
table ip theirs {
	chain c {
		type nat hook prerouting priority -150
		ip saddr ` + lab.SecondClientIP4 + ` meta l4proto udp dnat to 10.0.0.4:8080
	}
}
table ip6 theirs {
	chain c {
		type nat hook prerouting priority -150
		ip6 saddr ` + lab.SecondClientIP6 + ` meta l4proto udp dnat to [fd00:10::4]:8080
	}
}
`

// translatedByOthers starts streams to web's addresses that another program translates.
func (tr *tracked) translatedByOthers(t *testing.T) []string {
	t.Helper()
	load := tr.Node.Command(t.Context(), "nft", "-f", "-")
	load.Stdin = strings.NewReader(foreignDNAT)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var streams []string
	for _, to := range everywhere() {
		if a := to.Addr(); a.String() == lab.NodeIP4 || a.String() == lab.NodeIP6 || to.Port() == 80 {
			name := "theirs to " + to.String()
			source := netip.MustParseAddr([]string{lab.SecondClientIP4, lab.SecondClientIP6}[model.FamilyOf(a)])
			s, err := tr.Client.Stream(name, netip.AddrPortFrom(source, uint16(21000+len(streams))), to, stepOfStream)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			tr.streams[name] = s
			streams = append(streams, name)
		}
	}
	return streams
}

// entriesFrom returns the ids of the flows from the client's ports of a thousand.
func (tr *tracked) entriesFrom(t *testing.T, thousand int) map[string]uint32 {
	t.Helper()
	ids := map[string]uint32{}
	for entry, id := range tr.entries(t) {
		if strings.Contains(entry, fmt.Sprintf(":%d0", thousand)) {
			ids[entry] = id
		}
	}
	return ids
}

// nodePorts are web's node ports.
func nodePorts() []netip.AddrPort {
	return []netip.AddrPort{frontends(model.IPv4)[3], frontends(model.IPv6)[3]}
}

// The node's address changes while the endpoint is replaced: what is still sent to the old
// address is not for the endpoint that is gone, nor for the new one.
func TestUDPFlowsEndWithTheNodePortAddress(t *testing.T) {
	forEachTracker(t, func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend) {
		tr := newTracked(t, open, 3)
		theirs := tr.translatedByOthers(t)
		tr.set(append(webSlices([]int{1}), web())...)
		streams := tr.client(t, nodePorts()...)
		tr.mustArrive(t, "pod-1", streams)
		tr.mustHear(t, tr.sinks["pod-3"], theirs)
		tr.set(append(webSlices([]int{2}), modeltest.NewNode(modeltest.NodeName, "192.168.0.101", "fd00:192:168::101"))...)
		tr.mustCease(t, streams)
		tr.mustHear(t, tr.sinks["pod-3"], theirs)
		// And back.
		tr.set(modeltest.OurNode())
		tr.mustArrive(t, "pod-2", streams)
	})
}

// A Service is deleted while nobody cleans up.
func TestUDPFlowsEndWithAServiceThatWentMeanwhile(t *testing.T) {
	forEachTracker(t, func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend) {
		tr := newTracked(t, open, 3)
		tr.set(append(webSlices([]int{1}), web())...)
		streams := tr.client(t, everywhere()...)
		tr.mustArrive(t, "pod-1", streams)
		tr.stop()
		theirs := tr.translatedByOthers(t)
		tr.mustHear(t, tr.sinks["pod-3"], theirs)
		before := tr.entriesFrom(t, 21)
		tr.start(t, open)
		tr.mustCease(t, streams)
		tr.mustHear(t, tr.sinks["pod-3"], theirs)
		kept := tr.entriesFrom(t, 21)
		for entry, id := range before {
			if strings.Contains(entry, "172.30.0") || strings.Contains(entry, "fd00:172:30") {
				continue // see rules.strays
			}
			if kept[entry] != id {
				t.Errorf("a flow that others translate is gone: %s", entry)
			}
		}
		tr.set(append(webSlices([]int{2}), web())...)
		tr.mustArrive(t, "pod-2", streams)
	})
}

// held are web's addresses without the cluster IPs, which nobody can have.
func held() []netip.AddrPort {
	return append(frontends(model.IPv4)[1:], frontends(model.IPv6)[1:]...)
}

// holder has these addresses, but for the node's, as the host behind the node that had them
// before the Service.
func (tr *tracked) holder(t *testing.T) map[netip.AddrPort]*net.UDPConn {
	t.Helper()
	pod := tr.Pods()[2]
	conns := map[netip.AddrPort]*net.UDPConn{}
	for _, at := range held() {
		ns := pod.Namespace
		if a := at.Addr().String(); a == lab.NodeIP4 || a == lab.NodeIP6 {
			ns = tr.Node
		} else {
			own := netip.PrefixFrom(at.Addr(), at.Addr().BitLen())
			via := pod.IP4
			if at.Addr().Is6() {
				via = pod.IP6
			}
			if err := ns.AddAddr("eth0", own); err != nil {
				t.Fatal(err)
			}
			if err := tr.Node.AddRoute(lab.Route{Dst: own, Link: pod.Link, Via: via}); err != nil {
				t.Fatal(err)
			}
		}
		conns[at] = listenUDP(t, ns, at)
	}
	return conns
}

// clientPort is a port of the client's address in the family of another address.
func (tr *tracked) clientPort(to netip.AddrPort, port int) netip.AddrPort {
	a := netip.MustParseAddr([2]string{lab.ClientIP4, lab.ClientIP6}[model.FamilyOf(to.Addr())])
	return netip.AddrPortFrom(a, uint16(port))
}

func listenUDP(t *testing.T, ns *lab.Namespace, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	if err := ns.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A host that has a Service's address answers after the client's flow was deleted: its answer
// begins a flow of its own, in which the client's datagrams are replies that no rule sees.
func TestALateAnswerKeepsNoClient(t *testing.T) {
	forEachTracker(t, func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend) {
		tr := newTracked(t, open, 3)
		holder := tr.holder(t)
		clients := map[netip.AddrPort]*net.UDPConn{} // by the address that they ask
		asked := map[netip.AddrPort]netip.AddrPort{}
		for i, to := range held() {
			asked[to] = tr.clientPort(to, 20000+i)
			clients[to] = listenUDP(t, tr.Client, asked[to])
		}
		// The node itself sends from the node port's number: these flows are its own.
		own := map[netip.AddrPort]netip.AddrPort{}
		for _, from := range nodePorts() {
			own[from] = tr.clientPort(from, 123)
		}
		// The kernel tracks flows from when there are rules.
		waitUntil(t, "all flows are tracked", func() bool {
			for to, c := range clients {
				tell(t, c, to)
			}
			for from, to := range own {
				tell(t, holder[from], to)
			}
			return len(tr.entries(t)) == len(asked)+len(own)
		})
		kept := tr.entries(t)
		for to, c := range clients {
			hear(t, holder[to])
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		tr.set(append(webSlices([]int{1}), web())...)
		waitUntil(t, "the flows from before the Service are gone", func() bool { return len(tr.entries(t)) == len(own) })
		for from, to := range asked {
			tell(t, holder[from], to)
			if _, ok := tr.entries(t)[reversed(from, to)]; !ok {
				t.Fatalf("no flow from %v to %v: nothing is tested: %v", from, to, tr.entries(t))
			}
		}
		tr.mustArrive(t, "pod-1", tr.client(t, held()...))
		now := tr.entries(t)
		for from, to := range own {
			if entry := reversed(from, to); now[entry] == 0 || now[entry] != kept[entry] {
				t.Errorf("a flow of the node's own is gone: %s", entry)
			}
		}
	})
}

// reversed is how entries has a flow that a frontend began.
func reversed(from, to netip.AddrPort) string {
	return fmt.Sprintf("<udp, Src: %v, Dst: %v>, answered by %v:%d", from, to, to.Addr(), to.Port())
}

func tell(t *testing.T, from *net.UDPConn, to netip.AddrPort) {
	t.Helper()
	if _, err := from.WriteToUDPAddrPort([]byte("late"), to); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c *net.UDPConn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ReadFromUDPAddrPort(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
}

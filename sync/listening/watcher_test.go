package listening

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

func TestSocketsAreFound(t *testing.T) {
	vip := func(p model.Protocol, a net.Addr, addr string) model.VIP {
		return model.VIP{Addr: netip.MustParseAddr(addr), Protocol: p, Port: netip.MustParseAddrPort(a.String()).Port()}
	}
	check := func(v model.VIP, want bool) {
		t.Helper()
		if got, err := Listens(v); err != nil || got != want {
			t.Errorf("%v: want %v, got %v, %v", v, want, got, err)
		}
	}
	for _, tt := range []struct{ network, at, addr string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1"},
		{"tcp4", "0.0.0.0:0", "127.0.0.3"},
		{"tcp", "[::]:0", "127.0.0.1"},
		{"tcp6", "[::1]:0", "::1"},
		{"tcp", "[::]:0", "::1"},
	} {
		l, err := net.Listen(tt.network, tt.at)
		if err != nil {
			t.Errorf("%s %s: %v", tt.network, tt.at, err)
			continue
		}
		v := vip(model.TCP, l.Addr(), tt.addr)
		check(v, true)
		if tt.at == "127.0.0.1:0" {
			check(vip(model.TCP, l.Addr(), "127.0.0.2"), false)
			check(vip(model.UDP, l.Addr(), "127.0.0.1"), false)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		check(v, false)
	}
	for _, tt := range []struct{ network, at, addr string }{
		{"udp4", "127.0.0.1:0", "127.0.0.1"}, {"udp", "[::]:0", "127.0.0.1"}, {"udp6", "[::1]:0", "::1"},
	} {
		l, err := net.ListenPacket(tt.network, tt.at)
		if err != nil {
			t.Errorf("%s %s: %v", tt.network, tt.at, err)
			continue
		}
		v := vip(model.UDP, l.LocalAddr(), tt.addr)
		check(v, true)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		check(v, false)
	}
	check(model.VIP{Addr: netip.MustParseAddr("127.0.0.1"), Protocol: model.SCTP, Port: 80}, false)
}

// Only new frontends on addresses of the node are looked up, each once.
func TestWhatIsLookedUp(t *testing.T) {
	var asked, found []string
	w := New(Options{Found: func(s model.NamespacedName, fe model.Frontend) {
		found = append(found, fmt.Sprintf("%v %v %v", s, fe.Kind, fe.VIP))
	}})
	w.listens = func(v model.VIP) (bool, error) {
		asked = append(asked, v.String())
		return v.Port == 22, nil
	}
	b := modeltest.Builder(modeltest.Config(), modeltest.OurNode())
	round := func(when string, wantAsked, wantFound []string) {
		t.Helper()
		asked, found = nil, nil
		w.Done(reconcile.Round{Snapshot: b.Snapshot()})
		w.look(t.Context())
		slices.Sort(asked)
		if diff := cmp.Diff(wantAsked, asked); diff != "" {
			t.Errorf("%s: looked up (-want +got):\n%s", when, diff)
		}
		if diff := cmp.Diff(wantFound, found); diff != "" {
			t.Errorf("%s: found (-want +got):\n%s", when, diff)
		}
	}
	ssh := modeltest.NewService("ns1/ssh").On("172.30.0.41").TCP("ssh", 22).NodePort(30022)
	round("nothing", nil, nil)
	ssh.External("192.168.99.1").Set(b)
	round("another address", nil, nil)
	ssh = ssh.External("192.168.99.1", "192.168.0.2")
	ssh.Set(b)
	round("an external IP", []string{"192.168.0.2:22/tcp"}, []string{"ns1/ssh external IP 192.168.0.2:22/tcp"})
	modeltest.NewSlice("ns1/ssh-1", "ssh").TCP("ssh", 22).Ready("10.0.0.2").Set(b)
	round("an endpoint", nil, nil)
	modeltest.NewService("ns1/web").On("172.30.0.42").TCP("http", 80).LoadBalancer("192.168.0.2").Set(b)
	round("a load balancer's address", []string{"192.168.0.2:80/tcp"}, nil)
	modeltest.NewNode("node-1", "192.168.99.1", "192.168.0.2").Set(b)
	round("the node has one more address",
		[]string{"192.168.0.2:22/tcp", "192.168.0.2:80/tcp", "192.168.99.1:22/tcp"},
		[]string{"ns1/ssh external IP 192.168.99.1:22/tcp", "ns1/ssh external IP 192.168.0.2:22/tcp"})
	ssh.Delete(b)
	round("it is gone", nil, nil)
}

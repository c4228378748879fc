package main

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
)

func TestSocketsAreFound(t *testing.T) {
	vip := func(p model.Protocol, a net.Addr, addr string) model.VIP {
		return model.VIP{Addr: netip.MustParseAddr(addr), Protocol: p, Port: netip.MustParseAddrPort(a.String()).Port()}
	}
	check := func(v model.VIP, want bool) {
		t.Helper()
		if got, err := listens(v); err != nil || got != want {
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

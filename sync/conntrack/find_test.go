package conntrack

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
)

func TestFind(t *testing.T) {
	n := newNamespace(t)
	want := parse(t, "tcp 172.30.0.10:80 from 10.0.0.2:8080")
	n.create(t, 1, func(int) flow { return want })
	l := Lister{NetNS: n.fd()}
	e, found, err := l.Find(t.Context(), model.TCP, want.source, want.dest)
	if err != nil || !found || e.ReplySource != want.replySource || !e.Answered {
		t.Errorf("found %v: %+v, %v", found, e, err)
	}
	other := netip.AddrPortFrom(want.dest.Addr(), 81)
	if _, found, err = l.Find(t.Context(), model.TCP, want.source, other); found || err != nil {
		t.Errorf("another one is found: %v, %v", found, err)
	}
}

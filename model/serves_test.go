package model_test

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
)

func TestServes(t *testing.T) {
	at := netip.MustParseAddrPort
	sp := &model.ServicePort{
		Endpoints: []model.Endpoint{{Addr: at("10.0.0.1:80")}, {Addr: at("10.0.0.2:80")}},
		Draining:  []netip.AddrPort{at("10.0.0.3:80")},
	}
	for addr, want := range map[string]bool{"10.0.0.1:80": true, "10.0.0.2:80": true, "10.0.0.3:80": true, "10.0.0.2:81": false, "10.0.0.4:80": false} {
		if got := sp.Serves(at(addr)); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
	if (*model.ServicePort)(nil).Serves(at("10.0.0.1:80")) {
		t.Error("no service port serves")
	}
}

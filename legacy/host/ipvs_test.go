package host

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/nettest"
)

var compareAddrs = []cmp.Option{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b ipvs.Entry) bool { return a == b }),
}

// What is added to a set is listed, once, and what is deleted is gone: a restart has nothing to write.
func TestSetsHoldEntries(t *testing.T) {
	nettest.Enter(t)
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, f := range model.Families {
		a, b := modeltest.Pod(f, 1), modeltest.Pod(f, 2)
		entries := map[ipvs.SetName][]ipvs.Entry{
			ipvs.Addrs:    {{Addr: a}, {Addr: b}},
			ipvs.Services: {{Addr: a, Protocol: model.TCP, Port: 80}, {Addr: a, Protocol: model.UDP, Port: 80}, {Addr: b, Protocol: model.SCTP, Port: 65535}},
			ipvs.Sources: {
				{Addr: a, Protocol: model.TCP, Port: 80, Net: netip.PrefixFrom(b, b.BitLen())},
				{Addr: a, Protocol: model.TCP, Port: 80, Net: netip.PrefixFrom(b, 8).Masked()},
				{Addr: a, Protocol: model.TCP, Port: 80, Net: netip.PrefixFrom(f.Unspecified(), 1)},
			},
			ipvs.Hairpin: {{Addr: a, Net: netip.PrefixFrom(a, a.BitLen())}, {Addr: b, Net: netip.PrefixFrom(b, b.BitLen())}},
		}
		want := map[ipvs.SetName]map[ipvs.Entry]bool{}
		for name, list := range entries {
			if err := createSet(h, f, name); err != nil {
				t.Logf("without sets of type %s: %v", name.Type(), err)
				continue
			}
			want[name] = map[ipvs.Entry]bool{}
			for _, e := range append(list, list[0]) {
				want[name][e] = true
				if err := h.IpsetAdd(name.In(f), setEntry(e)); err != nil {
					t.Errorf("add %v to %s: %v", e, name.In(f), err)
				}
			}
			for range 2 {
				if err := h.IpsetDel(name.In(f), setEntry(list[1])); err != nil {
					t.Errorf("delete %v from %s: %v", list[1], name.In(f), err)
				}
			}
			delete(want[name], list[1])
			if err := createSet(h, f, name); err != nil {
				t.Errorf("create %s again: %v", name.In(f), err)
			}
		}
		if len(want) == 0 {
			nettest.Missing(t, errors.New("this kernel has no ipset"))
		}
		got, err := readSets(f)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, compareAddrs...); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func TestKernelVersions(t *testing.T) {
	for _, c := range []struct {
		release string
		less    bool
	}{
		{"6.1.0-56-cloud-amd64", false},
		{"5.8.18", true},
		{"5.9.0", false},
		{"5.10.1", false},
		{"4.18.0-553.el8_10.x86_64", true},
		{"unknown", true},
	} {
		if got := older(c.release, "5.9"); got != c.less {
			t.Errorf("%s is older than 5.9: %v", c.release, got)
		}
	}
}

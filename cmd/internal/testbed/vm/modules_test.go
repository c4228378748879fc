package main

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const someModules = `crc32c_generic			
dummy	drivers/net/dummy.ko		rtnl-link-dummy
ip_vs	net/ip_vs.ko	nf_conntrack libcrc32c	
ip_vs_rr	net/ip_vs_rr.ko	ip_vs	
libcrc32c	lib/libcrc32c.ko	crc32c_generic	
nf_conntrack	net/nf_conntrack.ko	libcrc32c	nf_conntrack-2 nf_conntrack-10
orphan	net/orphan.ko	nowhere	
`

func someCatalog(t *testing.T) catalog {
	t.Helper()
	c, err := parseCatalog(someModules)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCatalogText(t *testing.T) {
	if diff := cmp.Diff(someModules, someCatalog(t).text()); diff != "" {
		t.Errorf("read and written (-want +got):\n%s", diff)
	}
	if _, err := parseCatalog("too few fields\n"); err == nil {
		t.Error("a line that is none was read")
	}
}

func TestParseModinfo(t *testing.T) {
	m := parseModinfo("license=GPL\x00depends=nf-conntrack,libcrc32c\x00alias=net-pf-16\x00alias=pci:v*d*\x00name=x\x00")
	if diff := cmp.Diff([]string{"nf_conntrack", "libcrc32c"}, m.needs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"net-pf-16"}, m.aliases); diff != "" {
		t.Error(diff)
	}
	if m := parseModinfo("depends=\x00"); len(m.needs) != 0 {
		t.Errorf("needs %q, want nothing", m.needs)
	}
}

func TestOrder(t *testing.T) {
	for _, tt := range []struct{ name, want, err string }{
		{"dummy", "dummy", ""},
		{"ip-vs-rr", "libcrc32c nf_conntrack ip_vs ip_vs_rr", ""},
		{"crc32c-generic", "", ""},
		{"ip_vs_twos", "", "module ip_vs_twos: "},
		{"orphan", "", "module orphan: module nowhere: "},
	} {
		list, err := someCatalog(t).order(tt.name)
		var names []string
		for _, m := range list {
			names = append(names, m.name)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		if tt.err == "" && err != nil || tt.err != "" && (!errors.Is(err, errNoModule) || !strings.HasPrefix(err.Error(), tt.err)) {
			t.Errorf("%s: got error %v, want %q", tt.name, err, tt.err)
		}
	}
}

func TestFind(t *testing.T) {
	c := someCatalog(t)
	for name, want := range map[string]string{
		"ip-vs": "ip_vs", "nf_conntrack-10": "nf_conntrack", "rtnl-link-dummy": "dummy", "rtnl-link-veth": "",
	} {
		if got := strings.Join(c.find(name), " "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	for _, tt := range []struct{ name, load, without, want, err string }{
		{"all but what can't be loaded", "", "", "crc32c_generic dummy ip_vs ip_vs_rr libcrc32c nf_conntrack", ""},
		{"to load", "ip_vs", "", "crc32c_generic dummy ip_vs ip_vs_rr libcrc32c nf_conntrack", ""},
		{"left out, with those that need it", "", "ip-vs", "crc32c_generic dummy libcrc32c nf_conntrack", ""},
		{"left out, and to load", "ip_vs_rr", "nf_conntrack", "", "module ip_vs_rr: module ip_vs: module nf_conntrack: "},
		{"left out, and unknown", "", "ip_vss", "", "leave out module ip_vss: "},
		{"left out, and part of the kernel", "", "crc32c_generic", "", "leave out module crc32c_generic: "},
		{"to load, and unknown", "ip_vss", "", "", "module ip_vss: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := someCatalog(t).choose(strings.Fields(tt.load), strings.Fields(tt.without))
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
					t.Fatalf("got error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); names != tt.want {
				t.Errorf("got %q, want %q", names, tt.want)
			}
		})
	}
}

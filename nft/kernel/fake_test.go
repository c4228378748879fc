package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// These tests need no privileges: the kernel is one in memory.

func fakeDialer(k *nftfake.Kernel) dialer {
	return func() (Socket, error) { return k.Dial(), nil }
}

// dialer opens connections.
type dialer func() (Socket, error)

func (d dialer) dial() (*conn, error) { return Options{Dial: d}.dial() }

// openFake opens a Backend of a kernel in memory.
func openFake(t testing.TB, k *nftfake.Kernel) *Backend {
	t.Helper()
	return openAs(t, Options{Dial: fakeDialer(k)})
}

// failIf makes some messages fail.
func failIf(fault nftfake.Fault, is func(nftfake.Request) bool) func(nftfake.Request) nftfake.Fault {
	return func(r nftfake.Request) nftfake.Fault {
		if is(r) {
			return fault
		}
		return nftfake.NoFault
	}
}

// failing makes messages of one type fail, all of them or those that contain one of some values.
func failing(kind uint16, fault nftfake.Fault, values ...[]byte) func(nftfake.Request) nftfake.Fault {
	return failIf(fault, func(r nftfake.Request) bool {
		has := func(v []byte) bool { return bytes.Contains(r.Data, v) }
		return r.Type == kind && (len(values) == 0 || slices.ContainsFunc(values, has))
	})
}

// fakeContents reads all that a kernel has.
func fakeContents(t testing.TB, k *nftfake.Kernel, s *model.Snapshot) (all [len(model.Families)]contents) {
	t.Helper()
	c, err := fakeDialer(k).dial()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range model.Families {
		_, all[f] = contentsOf(t, c, s.Family(f))
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// tableOf returns a table's flags and owner.
func tableOf(t testing.TB, b *Backend, f model.Family) (flags, owner uint32) {
	t.Helper()
	const tableOwner = 7 // NFTA_TABLE_OWNER
	m := messages{family: f, table: nft.TableName}
	m.end(m.object(unix.NFT_MSG_GETTABLE, 0))
	err := b.conn.exchange(&m, func(attrs []byte) error {
		flags, owner = nfnl.Uint32(nfnl.First(attrs, unix.NFTA_TABLE_FLAGS)), nfnl.Uint32(nfnl.First(attrs, tableOwner))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return flags, owner
}

func TestATableIsClaimed(t *testing.T) {
	const ours = tableFlagOwner | tableFlagPersist
	s := exampleBuilder().Snapshot()
	for _, tt := range []struct {
		name   string
		old    bool // the kernel knows no owners
		before func(t *testing.T, k *nftfake.Kernel)
		want   error
		flags  uint32
		writes bool
	}{
		{"there is none", false, func(*testing.T, *nftfake.Kernel) {}, nil, ours, true},
		{"there is none, on an older kernel", true, func(*testing.T, *nftfake.Kernel) {}, nil, 0, true},
		{"its owner has ended", false, func(t *testing.T, k *nftfake.Kernel) {
			b := openFake(t, k)
			apply(t, b, s)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}, nil, ours, false},
		{"somebody owns it", false, func(t *testing.T, k *nftfake.Kernel) { apply(t, openFake(t, k), s) }, ErrOwned, ours, false},
		{"another process is at work on an older kernel", true, func(t *testing.T, k *nftfake.Kernel) {
			apply(t, openFake(t, k), s)
		}, nil, 0, false},
		{"it was made without an owner, and stays without", false, func(t *testing.T, k *nftfake.Kernel) {
			apply(t, openAs(t, Options{Dial: fakeDialer(k), Unowned: true}), s)
		}, nil, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := &nftfake.Kernel{OnlyBefore69: tt.old}
			tt.before(t, k)
			b := openFake(t, k)
			if want := tt.flags == ours; b.Owned() != want {
				t.Errorf("Owned is %v, want %v", b.Owned(), want)
			}
			before := k.Generation()
			if err := b.Apply(t.Context(), s); !errors.Is(err, tt.want) {
				t.Fatalf("Apply returned %v, want %v", err, tt.want)
			}
			if got := b.Stats(model.IPv4).Operations > 0; got != tt.writes {
				t.Errorf("it wrote: %v, want %v", got, tt.writes)
			}
			if tt.want != nil {
				if err := remove(b); !errors.Is(err, tt.want) || k.Generation() != before {
					t.Errorf("Remove returned %v, or something changed", err)
				}
			}
			for _, f := range model.Families {
				flags, owner := tableOf(t, b, f)
				if flags != tt.flags {
					t.Errorf("%v: flags %#x, want %#x", f, flags, tt.flags)
				}
				if isOurs := owner == b.conn.socket.Port(); isOurs != (tt.want == nil && tt.flags != 0) {
					t.Errorf("%v: the owner is %d, and we are %d", f, owner, b.conn.socket.Port())
				}
			}
			mustMatchIn(t, fakeDialer(k), s)
		})
	}
}

// frontendKey is how a service port's cluster IP is found.
func frontendKey(sp *model.ServicePort) []byte {
	vip := sp.Frontends[0].VIP
	return nft.AppendPort(nft.AppendProto(nft.AppendAddr(nil, vip.Addr), sp.Name.Protocol), vip.Port)
}

func TestARefusedServiceIsLeftOut(t *testing.T) {
	const services = 40
	for _, refused := range []int{1, 3, services} {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			k := &nftfake.Kernel{}
			b := openFake(t, k)
			builder := model.NewBuilder(model.Config{})
			modeltest.Feed(builder, modeltest.Cluster(services, 3))
			s := builder.Snapshot()
			var bad [][]byte
			names := map[model.ServicePortName]bool{}
			for sp := range s.Family(model.IPv4).ServicePorts() {
				if len(bad) < refused {
					bad = append(bad, frontendKey(sp))
					names[sp.Name] = true
				}
			}
			k.Fail(failing(unix.NFT_MSG_NEWSETELEM, nftfake.Full, bad...))
			err := b.Apply(t.Context(), s)
			if err == nil {
				t.Fatal("no error")
			}
			if !model.IsProgrammed(err) {
				t.Errorf("the rest is not programmed: %v", err)
			}
			_, got := contentsOf(t, b.conn, s.Family(model.IPv4))
			for sp := range s.Family(model.IPv4).ServicePorts() {
				_, ok := got.Elements[nft.ServiceIPs][string(frontendKey(sp))]
				if want := !names[sp.Name]; ok != want {
					t.Errorf("%v is programmed: %v, want %v", sp.Name, ok, want)
				}
				if named := strings.Contains(err.Error(), fmt.Sprintf("Service %v: ", sp.Name)); named != names[sp.Name] {
					t.Errorf("the error names %v: %v, want %v\n%v", sp.Name, named, names[sp.Name], err)
				}
			}
			if got := b.Stats(model.IPv4).Rejected; got != refused {
				t.Errorf("%d service ports are rejected, want %d", got, refused)
			}
			k.Fail(nil)
			apply(t, b, s)
			mustMatchIn(t, fakeDialer(k), s)
			if got := b.Stats(model.IPv4); got.Rejected != 0 || got.Repairs != 0 {
				t.Errorf("%d service ports are rejected still, and %d repairs, want none", got.Rejected, got.Repairs)
			}
		})
	}
}

// A fault that passes is no refusal of the Service whose element it met: nothing is left out, and the next Apply
// brings all.
func TestAFaultThatPassesIsNoRefusal(t *testing.T) {
	for _, fault := range nftfake.Faults {
		k := &nftfake.Kernel{}
		b := openFake(t, k)
		s := exampleBuilder().Snapshot()
		var key []byte
		for sp := range s.Family(model.IPv4).ServicePorts() {
			key = frontendKey(sp)
		}
		k.Fail(failing(unix.NFT_MSG_NEWSETELEM, fault, key))
		if err := b.Apply(t.Context(), s); err == nil {
			t.Errorf("fault %d: no error", fault)
		}
		for _, f := range model.Families {
			if got := b.Stats(f).Rejected; got != 0 {
				t.Errorf("fault %d: %d service ports of %v are rejected, want none", fault, got, f)
			}
		}
		k.Fail(nil)
		apply(t, b, s)
		mustMatchIn(t, fakeDialer(k), s)
	}
}

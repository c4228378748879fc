package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// These tests need no privileges: the kernel is one in memory.

func fakeDialer(k *nftfake.Kernel) dialer {
	return func() (socket, error) { return k.Dial(), nil }
}

// openFake opens a Backend of a kernel in memory.
func openFake(t testing.TB, k *nftfake.Kernel) *Backend {
	t.Helper()
	b, err := Open(Options{dialer: fakeDialer(k)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// fakeContents reads all that a kernel has.
func fakeContents(t testing.TB, k *nftfake.Kernel, s *model.Snapshot) (all [len(model.Families)]contents) {
	t.Helper()
	c, err := fakeDialer(k).dial()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range model.Families {
		_, all[f] = contentsOf(t, c, s.Family(f), byList)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// tableOf returns a table's flags and owner.
func tableOf(t testing.TB, b *Backend, f model.Family) (flags, owner uint32) {
	t.Helper()
	flags, owner, err := b.conn.table(f)
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
		{"it was made without an owner", false, func(t *testing.T, k *nftfake.Kernel) {
			b, err := Open(Options{dialer: fakeDialer(k), Unowned: true})
			if err != nil {
				t.Fatal(err)
			}
			apply(t, b, s)
		}, nil, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := &nftfake.Kernel{OnlyBefore69: tt.old}
			tt.before(t, k)
			b := openFake(t, k)
			if want := !tt.old; b.Owned() != want {
				t.Errorf("Owned is %v, want %v", b.Owned(), want)
			}
			before := k.Generation()
			if err := b.Apply(t.Context(), s); !errors.Is(err, tt.want) {
				t.Fatalf("Apply returned %v, want %v", err, tt.want)
			}
			if got := b.Stats(model.IPv4).Operations > 0; got != tt.writes {
				t.Errorf("it wrote: %v, want %v", got, tt.writes)
			}
			if tt.want != nil && k.Generation() != before {
				t.Errorf("something changed")
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

func TestAnOwnedTableIsTakenOverOnceItsOwnerEnds(t *testing.T) {
	k := &nftfake.Kernel{}
	s := exampleBuilder().Snapshot()
	first, second := openFake(t, k), openFake(t, k)
	apply(t, first, s)
	if err := second.Apply(t.Context(), s); !errors.Is(err, ErrOwned) {
		t.Fatalf("got %v, want ErrOwned", err)
	}
	if err := second.Remove(t.Context()); !errors.Is(err, ErrOwned) {
		t.Errorf("Remove returned %v, want ErrOwned", err)
	}
	mustMatchIn(t, fakeDialer(k), s)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	apply(t, second, s)
	if got := second.Stats(model.IPv4).Operations; got != 0 {
		t.Errorf("taking over cost %d operations, want none", got)
	}
}

// largeBuilder makes a batch of several pieces.
func largeBuilder() *model.Builder {
	builder := exampleBuilder()
	modeltest.Feed(builder, modeltest.Cluster(100, 2*pieceSize/100))
	return builder
}

// A failure leaves what some whole pieces made, and the rest comes with the next Apply.
func TestAFailureBetweenPieces(t *testing.T) {
	s := largeBuilder().Snapshot()
	whole := &nftfake.Kernel{}
	var states [][len(model.Families)]contents
	b := openFake(t, whole)
	generation := whole.Generation()
	b.conn.socket = &watchedSocket{b.conn.socket, func() {
		if now := whole.Generation(); now != generation {
			generation = now
			states = append(states, fakeContents(t, whole, s))
		}
	}}
	apply(t, b, s)
	writes := b.Stats(model.IPv4).Operations
	const least = 5 // the table, and pieces behind it
	if len(states) < least {
		t.Fatalf("%d batches, want several", len(states))
	}
	counted, total := &nftfake.Kernel{}, 0
	again := openFake(t, counted)
	counted.Fail(func(r nftfake.Request) nftfake.Fault { total = r.N; return nftfake.NoFault })
	apply(t, again, s)
	for n := 1; n <= total; n += 1 + total/12 {
		for _, fault := range []nftfake.Fault{nftfake.Busy, nftfake.NoBuffers} {
			k := &nftfake.Kernel{}
			b := openFake(t, k)
			k.FailAt(n, fault)
			err := b.Apply(t.Context(), s)
			k.Fail(nil)
			got := fakeContents(t, k, s)
			found := false
			for _, state := range states {
				found = found || reflect.DeepEqual(state[model.IPv4], got[model.IPv4]) || got[model.IPv4].Sets == nil
			}
			if !found {
				t.Fatalf("%v at message %d, %v: the table is in a state between two pieces", fault, n, err)
			}
			apply(t, b, s)
			mustMatchIn(t, fakeDialer(k), s)
			if got := b.Stats(model.IPv4).Operations; got > 2*writes {
				t.Errorf("%v at message %d: %d operations, want hardly more than %d", fault, n, got, writes)
			}
		}
	}
}

// watchedSocket tells when something was sent.
type watchedSocket struct {
	socket
	sent func()
}

func (s *watchedSocket) Send(b []byte) error {
	err := s.socket.Send(b)
	s.sent()
	return err
}

// refuseElements makes a kernel refuse elements that contain one of some values.
func refuseElements(k *nftfake.Kernel, values ...[]byte) {
	k.Fail(func(r nftfake.Request) nftfake.Fault {
		for _, v := range values {
			if r.Type == unix.NFT_MSG_NEWSETELEM && bytes.Contains(r.Data, v) {
				return nftfake.Busy
			}
		}
		return nftfake.NoFault
	})
}

// frontendKey is how a service port's cluster IP is found.
func frontendKey(sp *model.ServicePort) []byte {
	vip := sp.Frontends[0].VIP
	return nft.AppendPort(nft.AppendProto(nft.AppendAddr(nil, vip.Addr), sp.Name.Protocol), vip.Port)
}

func TestARefusedServiceIsLeftOut(t *testing.T) {
	const services = 40
	for _, tt := range []struct {
		refused int
		whole   bool // nothing is programmed
	}{{1, false}, {3, false}, {maxRefused, false}, {maxRefused + 1, true}} {
		t.Run(fmt.Sprint(tt.refused), func(t *testing.T) {
			k := &nftfake.Kernel{}
			b := openFake(t, k)
			builder := model.NewBuilder(model.Config{})
			modeltest.Feed(builder, modeltest.Cluster(services, 3))
			s := builder.Snapshot()
			var bad [][]byte
			names := map[model.ServicePortName]bool{}
			for sp := range s.Family(model.IPv4).ServicePorts() {
				if len(bad) < tt.refused {
					bad = append(bad, frontendKey(sp))
					names[sp.Name] = true
				}
			}
			refuseElements(k, bad...)
			err := b.Apply(t.Context(), s)
			if err == nil {
				t.Fatal("no error")
			}
			_, got := contentsOf(t, b.conn, s.Family(model.IPv4), byList)
			for sp := range s.Family(model.IPv4).ServicePorts() {
				_, ok := got.Elements[nft.ServiceIPs][string(frontendKey(sp))]
				if want := !tt.whole && !names[sp.Name]; ok != want {
					t.Errorf("%v is programmed: %v, want %v", sp.Name, ok, want)
				}
				if named := strings.Contains(err.Error(), fmt.Sprintf("(Service %v)", sp.Name)); !tt.whole && named != names[sp.Name] {
					t.Errorf("the error names %v: %v, want %v\n%v", sp.Name, named, names[sp.Name], err)
				}
			}
			want := tt.refused
			if tt.whole {
				want = 0
			}
			if got := b.Stats(model.IPv4).Rejected; got != want {
				t.Errorf("%d service ports are rejected, want %d", got, want)
			}
			k.Fail(nil)
			apply(t, b, s)
			mustMatchIn(t, fakeDialer(k), s)
			if got := b.Stats(model.IPv4).Rejected; got != 0 {
				t.Errorf("%d service ports are rejected still, want none", got)
			}
		})
	}
}

// fakeClients reads the clients of a map.
func fakeClients(t testing.TB, b *Backend, f model.Family, name string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := b.conn.list(unix.NFT_MSG_GETSETELEM, f, name, func(attrs []byte) error {
		for list := range attributes(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS) {
			for element := range attributes(list, unix.NFTA_LIST_ELEM) {
				c := readClient(element)
				got[c.Key] = c.Data
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func mustHaveClients(t testing.TB, b *Backend, name string, want ...noted) {
	t.Helper()
	for _, f := range model.Families {
		all := map[string]string{}
		for _, n := range want {
			pod := podOf(f, n.pod)
			all[string(nft.AppendAddr(nil, clientOf(f, n.client)))] = string(nft.AppendPort(nft.AppendAddr(nil, pod.Addr()), pod.Port()))
		}
		if diff := cmp.Diff(all, fakeClients(t, b, f, name)); diff != "" {
			t.Errorf("%v: clients in %s (-want +got):\n%s", f, name, diff)
		}
	}
}

// Clients of a removed endpoint go, also if some of them time out between being read and being
// deleted.
func TestAPurge(t *testing.T) {
	for _, old := range []bool{false, true} {
		for _, vanish := range []int{0, 1, 7} {
			t.Run(fmt.Sprintf("old %v, %d vanish", old, vanish), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := &nftfake.Kernel{OnlyBefore63: old}
					b := openFake(t, k)
					s := newSticky(time.Hour)
					apply(t, b, s.builder.Snapshot())
					var list, stay []noted
					for i := range 60 {
						n := noted{i, 2 + i%2, time.Hour, time.Hour}
						if list = append(list, n); n.pod == 2 {
							stay = append(stay, n)
						}
					}
					for _, f := range model.Families {
						note(t, b, f, clusterClients, list...)
					}
					mustHaveClients(t, b, clusterClients, list...)
					b.conn.socket = &vanishing{b.conn.socket, func() {
						for i := range vanish {
							b.mustForget(t, clusterClients, list[1+2*i])
						}
					}}
					s.pods(2, 4)
					apply(t, b, s.builder.Snapshot())
					mustHaveClients(t, b, clusterClients, stay...)

					// A packet that met the old rules.
					note(t, b, model.IPv4, clusterClients, list[1])
					note(t, b, model.IPv6, clusterClients, list[1])
					<-b.Again()
					apply(t, b, s.builder.Snapshot())
					mustHaveClients(t, b, clusterClients, stay...)
				})
			})
		}
	}
}

// vanishing does something right before clients are deleted for the first time.
type vanishing struct {
	socket
	first func()
}

func (v *vanishing) Send(b []byte) error {
	if first := v.first; first != nil && deletesElements(b) {
		v.first = nil
		first()
	}
	return v.socket.Send(b)
}

func deletesElements(b []byte) bool {
	for {
		message, rest, ok := cutMessage(b)
		if !ok {
			return false
		}
		if message[4] == msgDestroySetElem || message[4] == unix.NFT_MSG_DELSETELEM {
			return true
		}
		b = rest
	}
}

// mustForget deletes a client of both families.
func (b *Backend) mustForget(t testing.TB, name string, n noted) {
	t.Helper()
	set := nft.DeclarationOf(name)
	for _, f := range model.Families {
		m := b.conn.newBatch(f, nft.TableName)
		m.clients(unix.NFT_MSG_DELSETELEM, &set, []client{{Element: nft.Element{Key: string(nft.AppendAddr(nil, clientOf(f, n.client)))}}})
		buffer := b.conn.buffer
		if err := b.conn.commit(&m); err != nil {
			t.Fatal(err)
		}
		b.conn.buffer = buffer // not that of the batch under way
	}
}

// withoutReplacement fails the test if a table is deleted.
func withoutReplacement(t testing.TB, k *nftfake.Kernel, choose func(nftfake.Request) nftfake.Fault) {
	t.Helper()
	k.Fail(func(r nftfake.Request) nftfake.Fault {
		if r.Type == unix.NFT_MSG_DELTABLE {
			t.Error("a healthy table is replaced")
		}
		return choose(r)
	})
}

func noFault(nftfake.Request) nftfake.Fault { return nftfake.NoFault }

// Whichever message fails, and in whichever way: the next Applies bring what is missing, and
// take no table away.
func TestEveryFaultOfEveryMessage(t *testing.T) {
	s := newSticky(time.Hour)
	for i := range 5 {
		modeltest.ClusterService(i).Set(s.builder)
		modeltest.ClusterSlice(i, 3, 0).Set(s.builder)
	}
	first := s.builder.Snapshot()
	s.pods(2, 4)
	s.builder.SetEndpointSlice(oneService(benchSize{5, 3}, 4, 0))
	modeltest.ClusterService(2).Delete(s.builder)
	second := s.builder.Snapshot()
	for _, tt := range []struct {
		name string
		run  func(b *Backend) error
	}{
		{"everything", func(b *Backend) error { return b.Apply(t.Context(), second) }},
		{"a change", func(b *Backend) error { return b.Apply(t.Context(), second) }},
		{"a comparison", func(b *Backend) error { b.Resync(); return b.Apply(t.Context(), first) }},
		{"a restart", func(b *Backend) error { return b.Apply(t.Context(), second) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			prepare := func() (*nftfake.Kernel, *Backend) {
				k := &nftfake.Kernel{}
				b := openFake(t, k)
				if tt.name == "everything" {
					return k, b
				}
				apply(t, b, first)
				for _, f := range model.Families {
					note(t, b, f, clusterClients, noted{1, 3, time.Hour, time.Hour}, noted{2, 2, time.Hour, time.Hour})
				}
				if tt.name == "a restart" {
					if err := b.Close(); err != nil {
						t.Fatal(err)
					}
					b = openFake(t, k)
				}
				return k, b
			}
			k, b := prepare()
			total := 0
			k.Fail(func(r nftfake.Request) nftfake.Fault { total = r.N; return nftfake.NoFault })
			if err := tt.run(b); err != nil {
				t.Fatal(err)
			}
			want := second
			if tt.name == "a comparison" {
				want = first
			}
			for n := 1; n <= total; n++ {
				fault := nftfake.Faults[n%len(nftfake.Faults)] // most kinds of messages are sent often
				k, b := prepare()
				withoutReplacement(t, k, func(r nftfake.Request) nftfake.Fault {
					if r.N == n {
						return fault
					}
					return nftfake.NoFault
				})
				err := tt.run(b)
				withoutReplacement(t, k, noFault)
				if err != nil {
					if next := b.Apply(t.Context(), want); next != nil {
						t.Fatalf("%v at message %d of %d, %v: the next Apply failed, too: %v", fault, n, total, err, next)
					}
				}
				mustMatchIn(t, fakeDialer(k), want)
				for _, f := range model.Families {
					if _, owner := tableOf(t, b, f); owner != b.conn.socket.Port() {
						t.Errorf("%v: the owner is %d, and we are %d", f, owner, b.conn.socket.Port())
					}
				}
				if tt.name != "everything" && tt.name != "a comparison" {
					mustHaveClients(t, b, clusterClients, noted{2, 2, time.Hour, time.Hour})
				}
				if t.Failed() {
					t.Fatalf("%v at message %d of %d, %v", fault, n, total, err)
				}
			}
		})
	}
}

// A lost answer to a batch that was carried out makes the next Apply read the tables, and write
// nothing.
func TestALostAnswer(t *testing.T) {
	k := &nftfake.Kernel{}
	b := openFake(t, k)
	builder := exampleBuilder()
	apply(t, b, builder.Snapshot())
	builder.SetEndpointSlice(exampleSlice("IPv4", 4))
	k.FailAt(1, nftfake.LostAnswers)
	if err := b.Apply(t.Context(), builder.Snapshot()); !errors.Is(err, unix.ENOBUFS) {
		t.Fatalf("Apply returned %v, want ENOBUFS", err)
	}
	mustMatchIn(t, fakeDialer(k), builder.Snapshot())
	before := b.Stats(model.IPv4)
	withoutReplacement(t, k, noFault)
	apply(t, b, builder.Snapshot())
	if got := b.Stats(model.IPv4).Operations - before.Operations; got != 0 {
		t.Errorf("%d operations after a lost answer, want none", got)
	}
}

// Whatever goes wrong in reading a table, however often, is no reason to take it for one that
// nobody can read.
func TestAFailureToReadIsNoReasonToReplaceATable(t *testing.T) {
	s := exampleBuilder().Snapshot()
	for _, kind := range []uint16{
		unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETSET, unix.NFT_MSG_GETSETELEM, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE,
	} {
		for _, fault := range nftfake.Faults {
			if fault == nftfake.Interrupted && kind != unix.NFT_MSG_GETTABLE {
				continue // at last it is taken as it is
			}
			k := &nftfake.Kernel{}
			b := openFake(t, k)
			apply(t, b, s)
			b.Resync()
			withoutReplacement(t, k, func(r nftfake.Request) nftfake.Fault {
				if r.Type == kind {
					return fault
				}
				return nftfake.NoFault
			})
			for range 4 {
				if err := b.Apply(t.Context(), s); err == nil {
					t.Errorf("%v of message type %d: no error", fault, kind)
				}
			}
			withoutReplacement(t, k, noFault)
			apply(t, b, s)
			mustMatchIn(t, fakeDialer(k), s)
		}
	}
}

// A cluster changes at random, up to a message in ten fails in a random way, and now and then
// the process starts anew. In the end all is as if nothing had ever failed.
func TestRandomFaults(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 3
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomFaults(t, seed) })
		})
	}
}

func randomFaults(t *testing.T, seed uint64) {
	t.Helper()
	const steps, tenth = 60, 10
	rate := []int{10, 50, 200}[seed%3]
	r := rand.New(rand.NewPCG(seed, 1))
	changes := modeltest.NewRandom(modeltest.Seed(seed))
	builder := model.NewBuilder(modeltest.Config())
	k := &nftfake.Kernel{OnlyBefore69: seed%4 == 1, OnlyBefore63: seed%4 >= 2, OnlyBefore616: seed%4 == 3}
	b := openFake(t, k)
	faults := func(nftfake.Request) nftfake.Fault {
		if r.IntN(rate) == 0 {
			return nftfake.Faults[r.IntN(len(nftfake.Faults))]
		}
		return nftfake.NoFault
	}
	failed := 0
	for range steps {
		changes.Steps(builder, 1+r.IntN(5))
		withoutReplacement(t, k, faults)
		if err := b.Apply(t.Context(), builder.Snapshot()); err != nil {
			failed++
		}
		withoutReplacement(t, k, noFault)
		switch r.IntN(tenth) {
		case 0:
			b.Resync()
		case 1:
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			b = openFake(t, k)
		case 2:
			time.Sleep(purgeAgain)
		}
	}
	if failed == 0 || failed == steps && rate > tenth {
		t.Errorf("%d of %d Applies failed: little is tested", failed, steps)
	}
	var err error
	for range 3 {
		if err = b.Apply(t.Context(), builder.Snapshot()); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("it still fails: %v", err)
	}
	mustMatchIn(t, fakeDialer(k), builder.Snapshot())
}

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftfake"
)

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
		{"a restart that reads ahead", func(b *Backend) error { b.ReadAhead(); return b.Apply(t.Context(), second) }},
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
				if strings.HasPrefix(tt.name, "a restart") {
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
			k.Fail(noFault) // what comes later does not count
			want := second
			if tt.name == "a comparison" {
				want = first
			}
			for n := 1; n <= total; n++ {
				fault := nftfake.Faults[n%len(nftfake.Faults)] // most kinds of messages are sent often
				k, b := prepare()
				withoutReplacement(t, k, failIf(fault, func(r nftfake.Request) bool { return r.N == n }))
				err := tt.run(b)
				withoutReplacement(t, k, noFault)
				mustPurge := func(st *familyState) bool { return len(st.purges) > 0 }
				if err != nil || slices.ContainsFunc(b.families, mustPurge) {
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
				// A client that a list lacks is left to its own next packet.
				if tt.name != "everything" && tt.name != "a comparison" && (err != nil || fault != nftfake.Interrupted) {
					mustHaveClients(t, b, clusterClients, noted{2, 2, time.Hour, time.Hour})
				}
				if t.Failed() {
					t.Fatalf("%v at message %d of %d, %v", fault, n, total, err)
				}
			}
		})
	}
}

// The kernel answers to the first message of a batch if the process lacks the capability, and to
// the one about a table if another process owns that.
func TestWhichRefusalIsWhich(t *testing.T) {
	refusal := func(sequence uint32) error {
		number := uint32(unix.EPERM)
		body := append(binary.NativeEndian.AppendUint32(nil, -number), make([]byte, unix.SizeofNlMsghdr)...)
		binary.NativeEndian.PutUint32(body[4:], unix.SizeofNlMsghdr)
		return replyError(unix.NLMSG_ERROR, 0, sequence, body)
	}
	if err := refusal(batchBegin); !errors.Is(err, ErrNotPermitted) {
		t.Errorf("about the begin of the batch: %v, want ErrNotPermitted", err)
	}
	if err := refusal(batchBegin + 1); errors.Is(err, ErrNotPermitted) || !errors.Is(err, unix.EPERM) {
		t.Errorf("about a table: %v, want EPERM", err)
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
			k := &nftfake.Kernel{}
			b := openFake(t, k)
			apply(t, b, s)
			b.Resync()
			withoutReplacement(t, k, failing(kind, fault))
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

// A table that the kernel does not delete is not taken for one that is gone.
func TestAFailureToDeleteATableIsAnError(t *testing.T) {
	k := &nftfake.Kernel{}
	b := openFake(t, k)
	apply(t, b, exampleBuilder().Snapshot())
	k.Fail(failing(unix.NFT_MSG_DELTABLE, nftfake.Invalid))
	if err := remove(b); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Remove returned %v, want EINVAL", err)
	}
}

// Another program's set in our table, of a type that nobody knows, is removed as any other, and the table stays.
func TestASetOfAnUnknownTypeIsRemoved(t *testing.T) {
	k := &nftfake.Kernel{}
	b := openAs(t, Options{Dial: fakeDialer(k), Unowned: true})
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	other, err := fakeDialer(k).dial()
	if err != nil {
		t.Fatal(err)
	}
	const unknown = 63
	addr := nftables.TypeIPAddr.GetNFTMagic()
	for i, types := range [][2]uint32{{unknown, 0}, {addr, unknown}, {addr << nftables.SetConcatTypeBits, 0}} {
		m := other.newBatch(model.IPv4, nft.TableName)
		at := m.object(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
		m.string(unix.NFTA_SET_NAME, fmt.Sprintf("strange-%d", i))
		m.uint32(unix.NFTA_SET_ID, 1)
		m.uint32(unix.NFTA_SET_KEY_TYPE, types[0])
		m.uint32(unix.NFTA_SET_KEY_LEN, 4)
		if types[1] != 0 {
			m.uint32(unix.NFTA_SET_FLAGS, unix.NFT_SET_MAP)
			m.uint32(unix.NFTA_SET_DATA_TYPE, types[1])
			m.uint32(unix.NFTA_SET_DATA_LEN, 4)
		}
		m.end(at)
		if err := other.commit(&m); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.close(); err != nil {
		t.Fatal(err)
	}
	b.Resync()
	withoutReplacement(t, k, noFault)
	apply(t, b, s)
	mustMatchIn(t, fakeDialer(k), s)
}

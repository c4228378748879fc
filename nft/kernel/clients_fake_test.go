package kernel

import (
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// fakeClients reads the clients of a map.
func fakeClients(t testing.TB, b *Backend, f model.Family, name string) map[string]string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	got := map[string]string{}
	err := b.conn.elements(f, name, func(element []byte) error {
		c := readClient(element)
		got[c.Key] = c.Data
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
					s := newSticky(3600)
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
					b.mu.Lock()
					b.conn.socket = &vanishing{b.conn.socket, func() {
						for i := range vanish {
							b.mustForget(t, clusterClients, list[1+2*i])
						}
					}}
					b.mu.Unlock()
					s.pods(2, 4)
					apply(t, b, s.builder.Snapshot())
					mustHaveClients(t, b, clusterClients, stay...)
				})
			})
		}
	}
}

// vanishing does something right before clients are deleted for the first time.
type vanishing struct {
	Socket
	first func()
}

func (v *vanishing) Send(b []byte) error {
	if first := v.first; first != nil && deletesElements(b) {
		v.first = nil
		first()
	}
	return v.Socket.Send(b)
}

func deletesElements(b []byte) bool {
	for {
		message, rest, ok := nfnl.CutMessage(b)
		if !ok {
			return false
		}
		if kind := binary.NativeEndian.Uint16(message[4:]) & 0xff; kind == msgDestroySetElem || kind == unix.NFT_MSG_DELSETELEM {
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

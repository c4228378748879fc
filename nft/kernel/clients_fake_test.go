package kernel

import (
	"fmt"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// mustHaveClients compares the clients of a map, and where each is sent.
func mustHaveClients(t testing.TB, b *Backend, name string, want ...noted) {
	t.Helper()
	for _, f := range model.Families {
		all, got := map[string]string{}, map[string]string{}
		for _, n := range want {
			pod := podOf(f, n.pod)
			all[string(nft.AppendAddr(nil, clientOf(f, n.client)))] = string(nft.AppendPort(nft.AppendAddr(nil, pod.Addr()), pod.Port()))
		}
		err := b.conn.elements(f, name, func(element []byte) error {
			c := readClient(element)
			got[c.Key] = c.Data
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		testaid.Equal(t, fmt.Sprintf("%v clients in %s", f, name), all, got)
	}
}

// A client may time out between being read and being deleted: deleting who is not there does no harm to the others. On
// the real kernel, and on that in memory.
func TestAClientWhoIsGoneDoesNotStopTheOthers(t *testing.T) {
	for name, b := range map[string]*Backend{
		"this kernel": open(t, newNetNS(t)), "in memory": openFake(t, &nftfake.Kernel{}),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSticky(time.Hour)
			apply(t, b, s.builder.Snapshot())
			list := make([]noted, 40)
			var changes []client
			for i := range list {
				list[i] = noted{i, 2, time.Hour, time.Hour}
			}
			for _, f := range model.Families {
				changes = changes[:0]
				for i := range 30 {
					changes = append(changes, client{Element: nft.Element{Key: string(nft.AppendAddr(nil, clientOf(f, i)))}})
				}
				note(t, b, f, clusterClients, list[3:8]...)
				note(t, b, f, clusterClients, list[17:]...)
				if err := b.conn.changeClients(f, clusterClients, changes); err != nil {
					t.Fatal(err)
				}
			}
			mustHaveClients(t, b, clusterClients, list[30:]...)
		})
	}
}

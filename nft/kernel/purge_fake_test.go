package kernel

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// A Service that the kernel refuses does not keep the clients of others at an endpoint that is gone.
func TestClientsAreForgottenBesideARefusedService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &nftfake.Kernel{}
		b := openFake(t, k)
		s := newSticky(time.Hour)
		apply(t, b, s.builder.Snapshot())
		modeltest.NewService("default/refused").On("172.30.0.99").TCP("", 80).Set(s.builder)
		s.pods(2, 4)
		snapshot := s.builder.Snapshot()
		port, _ := snapshot.Family(model.IPv4).ServicePort(modeltest.PortName("default/refused", "", model.TCP))
		k.Fail(failing(unix.NFT_MSG_NEWSETELEM, nftfake.Full, frontendKey(port)))
		_, refused := model.Failures(b.Apply(t.Context(), snapshot))
		if !refused[model.IPv4][port.Name] {
			t.Fatalf("the kernel refuses %v, want %v", refused, port.Name)
		}
		// Clients that were noted at pod 3, which is gone.
		for _, f := range model.Families {
			note(t, b, f, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
		}
		purge(t, b)
		mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour})
	})
}

// whileReading is a connection over which clients are read. It does something once, right behind
// the first clients.
type whileReading struct {
	Socket
	once *func()
}

func (r *whileReading) Receive() ([]byte, error) {
	b, err := r.Socket.Receive()
	if do := *r.once; do != nil {
		*r.once = nil
		do()
	}
	return b, err
}

// What happens while the clients of pod 3, which goes, are read has its effect on them. A table that is read anew has all its maps purged.
func TestAChangeDuringAPurge(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(b *Backend, s *sticky)
		keeps  func(noted) bool // who stays
	}{
		{"an endpoint is back", func(_ *Backend, s *sticky) { s.pods(2, 3, 4) }, func(noted) bool { return true }},
		{"another one goes", func(_ *Backend, s *sticky) { s.pods(4) }, func(noted) bool { return false }},
		{"the map goes", func(_ *Backend, s *sticky) { s.lasts(0) }, func(noted) bool { return false }},
		{"a comparison", func(b *Backend, _ *sticky) { b.Resync() }, func(n noted) bool { return n.pod != 3 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &nftfake.Kernel{}
				b, s := openFake(t, k), newSticky(time.Hour)
				apply(t, b, s.builder.Snapshot())
				var all []noted
				for i := range 2000 {
					all = append(all, noted{i, 2 + i%2, time.Hour, time.Hour})
				}
				for _, f := range model.Families {
					note(t, b, f, clusterClients, all...)
				}
				did := false
				once := func() {
					did = true
					tt.change(b, s)
					if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
						t.Error(err)
					}
				}
				do := &once
				b.reader.close()
				b.reader.dialer = func() (Socket, error) { return &whileReading{k.Dial(), do}, nil }
				s.pods(2, 4)
				apply(t, b, s.builder.Snapshot())
				if !did {
					t.Fatal("nothing was read")
				}
				s.lasts(time.Hour)
				apply(t, b, s.builder.Snapshot())
				all = slices.DeleteFunc(all, func(n noted) bool { return !tt.keeps(n) })
				mustHaveClients(t, b, clusterClients, all...)
			})
		})
	}
}

// A purge that fails is tried again, and no Apply fails for it.
func TestAPurgeThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &nftfake.Kernel{}
		b := openFake(t, k)
		s := newSticky(time.Hour)
		apply(t, b, s.builder.Snapshot())
		for _, f := range model.Families {
			note(t, b, f, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
		}
		k.Fail(failing(unix.NFT_MSG_GETSETELEM, nftfake.Busy))
		testaid.Run(t, b.RunPurges)
		s.pods(2, 4)
		if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute - time.Second) // and no try is at that moment
		k.Fail(nil)
		mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
		time.Sleep(purgeAgain)
		synctest.Wait()
		mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour})
	})
}

package kernel

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
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
		// Clients that were noted at pod 3, which goes.
		for _, f := range model.Families {
			note(t, b, f, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
		}
		_, refused := model.Failures(b.Apply(t.Context(), snapshot))
		if !refused[model.IPv4][port.Name] {
			t.Fatalf("the kernel refuses %v, want %v", refused, port.Name)
		}
		mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour})
	})
}

// A purge that fails is no failure of Apply, as the rules are right without it. The next Apply tries again.
func TestAPurgeThatFailsIsNoFailureOfApply(t *testing.T) {
	k := &nftfake.Kernel{}
	b := openFake(t, k)
	s := newSticky(time.Hour)
	apply(t, b, s.builder.Snapshot())
	for _, f := range model.Families {
		note(t, b, f, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
	}
	k.Fail(failing(unix.NFT_MSG_GETSETELEM, nftfake.Busy))
	s.pods(2, 4)
	apply(t, b, s.builder.Snapshot())
	k.Fail(nil)
	mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
	apply(t, b, s.builder.Snapshot())
	mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour})
}

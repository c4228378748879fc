package kernel

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// deletions are the sets from which messages that were sent together delete elements.
type deletions struct {
	Socket
	sent [][]string
}

func (d *deletions) Send(b []byte) error {
	var sets []string
	for rest := b; ; {
		message, behind, ok := cutMessage(rest)
		if !ok {
			break
		}
		rest = behind
		if byte(binary.NativeEndian.Uint16(message[4:])) == unix.NFT_MSG_DELSETELEM {
			const setName, genmsg = 2, 4 // NFTA_SET_ELEM_LIST_SET
			sets = append(sets, string(withoutZero(first(message[unix.SizeofNlMsghdr+genmsg:], setName))))
		}
	}
	d.sent = append(d.sent, sets)
	return d.Socket.Send(b)
}

// A packet that comes right behind the removal of an endpoint finds nobody who is sent there.
func TestFewClientsAreForgottenWithTheirEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openFake(t, &nftfake.Kernel{})
		s := newSticky(time.Hour)
		apply(t, b, s.builder.Snapshot())
		for _, f := range model.Families {
			note(t, b, f, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
			note(t, b, f, localClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
		}
		seen := &deletions{Socket: b.conn.socket}
		b.conn.socket = seen
		s.pods(2, 4)
		if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
			t.Fatal(err)
		}
		together := 0
		for _, sets := range seen.sent {
			if slices.Contains(sets, clusterClients) || slices.Contains(sets, localClients) {
				together++
				for _, want := range []string{"endpoints", "own-endpoints-default/web/tcp/http", "local-own-endpoints-default/web/tcp/http", clusterClients, localClients} {
					if !slices.Contains(sets, want) {
						t.Errorf("clients are forgotten in a batch that deletes nothing from %s, but from %q", want, sets)
					}
				}
			}
		}
		if together != len(model.Families) {
			t.Errorf("%d batches forget clients, want one for each family: %q", together, seen.sent)
		}
		mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour})
		mustHaveClients(t, b, localClients, noted{1, 2, time.Hour, time.Hour})
	})
}

// A process that ends between a batch and the purge behind it leaves clients of an endpoint that is gone. The next one forgets
// them before it changes anything, and not only behind a batch that may have many pieces.
func TestClientsThatWereLeftAreForgottenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &nftfake.Kernel{}
		left := openFake(t, k)
		s := newSticky(time.Hour)
		s.pods(2, 4)
		apply(t, left, s.builder.Snapshot())
		for _, f := range model.Families {
			note(t, left, f, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
			note(t, left, f, localClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
		}
		if err := left.Close(); err != nil {
			t.Fatal(err)
		}
		b := openFake(t, k)
		seen := &deletions{Socket: b.conn.socket}
		b.conn.socket = seen
		s.pods(2)
		if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
			t.Fatal(err)
		}
		seen.sent = slices.DeleteFunc(seen.sent, func(sets []string) bool { return len(sets) == 0 })
		if len(seen.sent) < 3 || !slices.Equal(slices.Concat(seen.sent[:2]...), []string{clusterClients, localClients}) {
			t.Errorf("the first deletions are from %q, want clients", seen.sent)
		}
		mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour})
		mustHaveClients(t, b, localClients, noted{1, 2, time.Hour, time.Hour})
	})
}

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
		refuseElements(k, frontendKey(port))
		_, refused := model.Failures(b.Apply(t.Context(), snapshot))
		if !refused[model.IPv4][port.Name] {
			t.Fatalf("the kernel refuses %v, want %v", refused, port.Name)
		}
		// Packets that were on their way note clients at pod 3, which is gone.
		for _, f := range model.Families {
			note(t, b, f, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
		}
		time.Sleep(time.Minute)
		mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour})
	})
}

// whileReading is a connection over which clients are read. It does something once, right behind
// the first clients.
type whileReading struct {
	Socket
	b    *Backend
	once *func()
}

func (r *whileReading) Receive(b []byte) (int, error) {
	n, err := r.Socket.Receive(b)
	if *r.once != nil && r.b != nil && r.b.mu.TryLock() { // not within Apply
		r.b.mu.Unlock()
		do := *r.once
		*r.once = nil
		do()
	}
	return n, err
}

// interrupted opens a backend, and makes it forget more clients than fit into a batch: those of pod
// 3, which goes. Something happens while it reads them.
func interrupted(t *testing.T, happens func(b *Backend, s *sticky)) (b *Backend, s *sticky, all []noted) {
	t.Helper()
	k := &nftfake.Kernel{}
	b = openFake(t, k)
	s = newSticky(time.Hour)
	apply(t, b, s.builder.Snapshot())
	for i := range clientsAtOnce + 500 {
		all = append(all, noted{i, 2 + i%2, time.Hour, time.Hour})
	}
	for _, f := range model.Families {
		note(t, b, f, clusterClients, all...)
	}
	did := false
	do := func() { did = true; happens(b, s) }
	once := &do
	b.dialer = func() (Socket, error) {
		if !b.mu.TryLock() { // within Apply, whose reading is not the purge's
			return k.Dial(), nil
		}
		b.mu.Unlock()
		return &whileReading{k.Dial(), b, once}, nil
	}
	s.pods(2, 4)
	if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if !did {
		t.Fatal("nothing was read beside Apply")
	}
	return b, s, all
}

func TestAnEndpointThatIsBackKeepsItsClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, all := interrupted(t, func(b *Backend, s *sticky) {
			s.pods(2, 3, 4)
			if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
				t.Error(err)
			}
		})
		waitForPurges(t, b, true)
		mustHaveClients(t, b, clusterClients, all...)
	})
}

func TestAnotherEndpointGoesDuringAPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := interrupted(t, func(b *Backend, s *sticky) {
			s.pods(4)
			if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
				t.Error(err)
			}
		})
		waitForPurges(t, b, false)
		mustHaveClients(t, b, clusterClients)
	})
}

func TestAMapGoesDuringAPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, _ := interrupted(t, func(b *Backend, s *sticky) {
			s.lasts(0)
			if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
				t.Error(err)
			}
		})
		waitForPurges(t, b, true)
		s.lasts(time.Hour)
		apply(t, b, s.builder.Snapshot())
		mustHaveClients(t, b, clusterClients)
	})
}

// A table that is read anew has all its maps purged.
func TestAComparisonDuringAPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, all := interrupted(t, func(b *Backend, s *sticky) {
			b.Resync()
			if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
				t.Error(err)
			}
		})
		waitForPurges(t, b, false)
		mustHaveClients(t, b, clusterClients, slices.DeleteFunc(all, func(n noted) bool { return n.pod == 3 })...)
	})
}

func TestCloseEndsAPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan error, 1)
		interrupted(t, func(b *Backend, _ *sticky) {
			go func() { closed <- b.Close() }()
		})
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

func failsToListElements(r nftfake.Request) nftfake.Fault {
	if r.Type == unix.NFT_MSG_GETSETELEM {
		return nftfake.Busy
	}
	return nftfake.NoFault
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
		k.Fail(failsToListElements)
		s.pods(2, 4)
		if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		k.Fail(nil)
		mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
		time.Sleep(slowestPurgeRetry)
		synctest.Wait()
		mustHaveClients(t, b, clusterClients, noted{1, 2, time.Hour, time.Hour})
	})
}

// Clients that are forgotten behind their batch are told of, and those that may have timed out while purges failed.
func TestClientsThatAreForgottenLateAreTold(t *testing.T) {
	for _, tt := range []struct {
		name   string
		behind func(t *testing.T, b *Backend, k *nftfake.Kernel, s *sticky)
		want   int // of each map that was purged
	}{
		{"all go with the batch", func(*testing.T, *Backend, *nftfake.Kernel, *sticky) {}, 0},
		{"one is noted behind it", func(t *testing.T, b *Backend, _ *nftfake.Kernel, _ *sticky) {
			t.Helper()
			for _, f := range model.Families {
				note(t, b, f, clusterClients, noted{3, 3, time.Hour, time.Hour})
			}
		}, 1},
		{"the purge fails, and the client times out", func(t *testing.T, b *Backend, k *nftfake.Kernel, _ *sticky) {
			t.Helper()
			for _, f := range model.Families {
				note(t, b, f, clusterClients, noted{3, 3, 2 * time.Second, 2 * time.Second})
			}
			b.purger.reader.close()
			k.Fail(failsToListElements)
			time.Sleep(3 * time.Second)
			k.Fail(nil)
		}, 2},
		{"another Apply forgets it", func(t *testing.T, b *Backend, _ *nftfake.Kernel, s *sticky) {
			t.Helper()
			for _, f := range model.Families {
				note(t, b, f, clusterClients, noted{3, 3, time.Hour, time.Hour})
			}
			b.Resync()
			s.pods(2)
			if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
				t.Error(err)
			}
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &nftfake.Kernel{}
				b := openFake(t, k)
				told := map[model.Family]int{}
				b.late = func(f model.Family, name model.ServicePortName) {
					if name != modeltest.PortName("default/web", "http", model.TCP) {
						t.Errorf("clients of %v are forgotten", name)
					}
					told[f]++
				}
				s := newSticky(time.Hour)
				apply(t, b, s.builder.Snapshot())
				for _, f := range model.Families {
					note(t, b, f, clusterClients, noted{1, 2, time.Hour, time.Hour}, noted{2, 3, time.Hour, time.Hour})
				}
				s.pods(2, 4)
				b.rest = func() { time.Sleep(time.Second) }
				if err := b.Apply(t.Context(), s.builder.Snapshot()); err != nil {
					t.Fatal(err)
				}
				tt.behind(t, b, k, s)
				time.Sleep(time.Minute)
				synctest.Wait()
				for _, f := range model.Families {
					if told[f] != tt.want {
						t.Errorf("%v: told %d times of clients that were forgotten late, want %d", f, told[f], tt.want)
					}
				}
			})
		})
	}
}

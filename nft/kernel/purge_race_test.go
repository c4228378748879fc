package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
)

// A client that connects after the rules have the new timeout, but before the clients are
// brought in line: its element still says the old one.
func TestAClientWhoConnectsBetweenBatchAndPurge(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: needs a machine that answers within milliseconds")
	}
	for _, tt := range []struct{ old, now time.Duration }{
		{time.Minute, 3 * time.Hour}, {3 * time.Hour, time.Minute}, {time.Minute, 61 * time.Second}, {61 * time.Second, time.Minute},
	} {
		t.Run(fmt.Sprintf("%v to %v", tt.old, tt.now), func(t *testing.T) {
			n := newNetNS(t)
			from := n.nowhere(t)
			s := newSticky(tt.old)
			s.pods(4)
			b := open(t, n)
			apply(t, b, s.builder.Snapshot())
			n.connect(t, "172.30.0.41:80")
			if got := n.clients(t, model.IPv4, clusterClients); got[from].lasts != tt.old {
				t.Fatalf("after a connection: %v", got)
			}
			s.lasts(tt.now)
			st := b.families[0]
			have := b.Ruleset(model.IPv4)
			want := retrying.Compile(have, s.builder.Snapshot().Family(model.IPv4))
			changes := batch.Diff(have, want)
			if _, err := b.send(st, changes); err != nil {
				t.Fatal(err)
			}
			n.connect(t, "172.30.0.41:80")
			since := time.Now()
			b.mu.Lock()
			st.update(func(to *shared) { to.ruleset = want })
			st.mustPurge(changes.Purge...)
			b.mu.Unlock()
			purge(t, b)
			check := func() {
				t.Helper()
				c, ok := n.clients(t, model.IPv4, clusterClients)[from]
				if !ok || c.lasts != tt.now || c.left > tt.now || c.left < tt.now-time.Since(since)-time.Second {
					t.Errorf("left: %+v, want all of %v", c, tt.now)
				}
			}
			check()
			b.Resync()
			apply(t, b, s.builder.Snapshot())
			check()
		})
	}
}

// nowhere gives the namespace an interface that all packets vanish in, and returns its
// address.
func (n netns) nowhere(t testing.TB) netip.Addr {
	t.Helper()
	n.do(t, func() error {
		out, err := exec.Command("sh", "-c", "ip link set lo up && ip link add veth0 arp off type veth peer name veth1 && "+
			"ip link set veth1 up && ip link set veth0 up && ip addr add 10.0.0.1/24 dev veth0 && ip route add default via 10.0.0.254").CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip: %w: %s", err, out)
		}
		return nil
	})
	return netip.MustParseAddr("10.0.0.1")
}

// connect sends the first packet of a connection, however slow the machine is. Nobody answers.
func (n netns) connect(t testing.TB, addr string) {
	t.Helper()
	to := netip.MustParseAddrPort(addr)
	n.do(t, func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		if err := unix.Connect(s, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); !errors.Is(err, unix.EINPROGRESS) {
			return errors.Join(errors.New("the connection is not under way"), err)
		}
		return nil
	})
}

// do runs fn in the namespace.
func (n netns) do(t testing.TB, fn func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Setns(n.fd(), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Deleting who is not there does no harm.
func TestAClientWhoIsGoneDoesNotStopTheOthers(t *testing.T) {
	n := newNetNS(t)
	s := newSticky(time.Hour)
	b := open(t, n)
	apply(t, b, s.builder.Snapshot())
	since := time.Now()
	list := make([]noted, 40)
	var changes []client
	for i := range list {
		list[i] = noted{i, 2, time.Hour, time.Hour}
		changes = append(changes, client{Element: nft.Element{Key: string(nft.AppendAddr(nil, clientOf(model.IPv4, i)))}})
	}
	note(t, b, model.IPv4, clusterClients, list[3:8]...)
	note(t, b, model.IPv4, clusterClients, list[17:]...)
	set := nft.DeclarationOf(clusterClients)
	if err := b.conn.changeClients(model.IPv4, &set, changes[:30]); err != nil {
		t.Fatal(err)
	}
	n.mustRemember(t, model.IPv4, clusterClients, since, list[30:]...)
}

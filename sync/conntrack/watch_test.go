package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

// A Watch has all events of its connections, and keeps none of others', however many there are.
func TestWatchIsNotDrownedByOthers(t *testing.T) {
	for _, f := range model.Families {
		t.Run(f.String(), func(t *testing.T) {
			n := newNamespace(t)
			mine := parse(t, map[model.Family]string{model.IPv4: "tcp 172.30.0.10:80 from 10.0.0.2:8080", model.IPv6: "tcp [fd00:172:30::10]:80 from [fd00:10::2]:8080"}[f])
			w, err := NewWatch(n.fd(), model.TCP, mine.source.Addr(), mine.dest)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			const count, each = 10_000, 1000
			begin := time.Now()
			n.create(t, count, func(i int) flow {
				if i%each == 0 {
					own := mine
					own.source = netip.AddrPortFrom(own.source.Addr(), uint16(1000+i/each))
					own.replyDest = own.source
					return own
				}
				other := mine // another port, protocol, destination, or client
				switch i % 4 {
				case 0:
					other.dest = netip.AddrPortFrom(other.dest.Addr(), 81)
				case 1:
					other.protocol = model.UDP
				case 2:
					other.dest = netip.AddrPortFrom(other.dest.Addr().Next(), 80)
				case 3:
					other.source = netip.AddrPortFrom(other.source.Addr().Next(), 1)
				}
				other.source = netip.AddrPortFrom(other.source.Addr(), uint16(2000+i))
				other.replyDest = other.source
				return other
			})
			t.Logf("%d connections in %v", count, time.Since(begin))
			for i := range count / each {
				client := netip.AddrPortFrom(mine.source.Addr(), uint16(1000+i))
				var events []Event
				for deadline := time.Now().Add(time.Minute); len(events) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
					events, _ = w.Of(client)
				}
				if len(events) != 1 || events[0].Change != Began || events[0].Dest != mine.dest || events[0].ReplySource != mine.replySource {
					t.Errorf("client %v: got %+v", client, events)
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.clients) != count/each || w.missing != nil {
				t.Errorf("want %d clients, got %d; missing: %v", count/each, len(w.clients), w.missing)
			}
		})
	}
}

// More events than there is room for are lost; the Watch says so, and goes on.
func TestWatchSaysThatEventsWereLost(t *testing.T) {
	n := newNamespace(t)
	mine := parse(t, "udp 172.30.0.10:53 from 10.0.0.2:8053")
	w, err := NewWatch(n.fd(), model.UDP, netip.Addr{}, mine.dest)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.conn.SetReadBuffer(1); err != nil { // the kernel makes it the least that there is
		t.Fatal(err)
	}
	w.mu.Lock() // so that it reads no more than one message
	flowOf := func(port int) func(int) flow {
		return func(i int) flow {
			f := mine
			f.source = netip.AddrPortFrom(f.source.Addr(), uint16(port+i))
			f.replyDest = f.source
			return f
		}
	}
	n.create(t, 1000, flowOf(1000))
	w.mu.Unlock()
	wait := func(what string, done func() bool) {
		for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	wait("nothing is said about lost events", func() bool { _, missing := w.Of(mine.source); return errors.Is(missing, errLost) })
	port := 5000
	wait("the Watch has ended", func() bool {
		events, _ := w.Of(netip.AddrPortFrom(mine.source.Addr(), uint16(port)))
		if len(events) == 0 { // it may be lost, too, while the buffer has others
			port++
			n.create(t, 1, flowOf(port))
		}
		return len(events) > 0
	})
}

func TestWatchIsBounded(t *testing.T) {
	w := &Watch{clients: map[netip.AddrPort][]Event{}}
	client := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("203.0.113.9"), uint16(i))
	}
	for i := range watchedClients + 10 {
		for range watchedEvents + 1 {
			w.add(Event{Change: Changed, Entry: Entry{Source: client(i)}})
		}
	}
	var got []string
	for _, i := range []int{9, 10, watchedClients + 9} {
		events, _ := w.Of(client(i))
		got = append(got, fmt.Sprint(i, len(events)))
	}
	want := []string{"9 0", "10 0", fmt.Sprint(watchedClients+9, watchedEvents)}
	if diff := cmp.Diff(want, got); diff != "" || len(w.clients) != 10 || !errors.Is(w.missing, errLost) {
		t.Errorf("clients and their events (-want +got):\n%s\n%d clients, missing: %v", diff, len(w.clients), w.missing)
	}
}

// A Watch that can no longer read says so, and has what came before.
func TestAWatchThatFailsSaysSo(t *testing.T) {
	n := newNamespace(t)
	w, err := NewWatch(n.fd(), model.UDP, netip.Addr{}, netip.MustParseAddrPort("172.30.0.10:53"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	<-w.done
	if _, missing := w.Of(netip.AddrPort{}); missing == nil || errors.Is(missing, errLost) {
		t.Errorf("missing events because of: %v", missing)
	}
}

package userspace

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// association is one end of an association with the calls of a relay.
type association struct {
	*testing.T
	*net.TCPConn
	raw  syscall.RawConn
	long *longMessage
}

func newAssociation(t *testing.T, c *net.TCPConn) association {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reset(c) })
	if err := errors.Join(setOption(raw, sctpRecvRcvInfo), c.SetDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}
	of := &env{ctx: t.Context(), limits: limits{message: patience}, long: make(chan struct{}, 100)}
	return association{t, c, raw, &longMessage{env: of, to: c, from: c}}
}

func (a association) sends(m message) {
	a.Helper()
	if err := m.send(a.raw); err != nil {
		a.Fatal(err)
	}
}

func (a association) gets(want message) {
	a.Helper()
	got, err := receiveMessage(a.raw, make([]byte, maxDatagram), a.long)
	if err != nil {
		a.Fatal(err)
	}
	if string(got.data) != string(want.data) || got.stream != want.stream || got.protocol != want.protocol || got.unordered != want.unordered {
		a.Errorf("got %d bytes on stream %d for protocol %v, unordered: %v; want %d on %d for %v, %v", len(got.data), got.stream, got.protocol,
			got.unordered, len(want.data), want.stream, want.protocol, want.unordered)
	}
}

// relayed returns a client and an endpoint with a relay between them. Both want 100 streams to send on, and get 64; the client
// has 32 to receive on.
func relayed(t *testing.T, r *rig, f model.Family) (client, endpoint association) {
	t.Helper()
	accept := func(streams uint16) (netip.AddrPort, func() *net.TCPConn) {
		l, err := listenStreams(netip.AddrPortFrom(f.Loopback(), 0), streams)
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) {
			t.Skip("SCTP: this kernel has none")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l.Addr().(*net.TCPAddr).AddrPort(), func() *net.TCPConn {
			c, err := l.AcceptTCP()
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	connect := func(to netip.AddrPort, streams uint16) *net.TCPConn {
		c, err := connectSCTP(t.Context(), to, streams)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const fewer = maxStreams / 2
	front, atFront := accept(fewer)
	back, atBack := accept(100)
	from := connect(front, 100)
	accepted := atFront()
	in, out := streamsOf(accepted)
	if in != maxStreams || out != fewer {
		t.Errorf("the client has %d streams to send on and %d to receive on, want %d and %d", in, out, maxStreams, fewer)
	}
	to := connect(back, in)
	r.conns.Go(func() { r.relay(model.SCTP, accepted, to) })
	return newAssociation(t, from), newAssociation(t, atBack())
}

func TestMessagesOfSCTPStayWhatTheyAre(t *testing.T) {
	for _, f := range model.Families {
		t.Run(f.String(), func(t *testing.T) {
			client, endpoint := relayed(t, newRig(t), f)
			s1ap := [4]byte{0, 0, 0, 18}
			list := []message{
				{data: []byte("one"), stream: 0},
				{data: []byte("two"), stream: maxStreams - 1, protocol: s1ap},
				{data: []byte("three"), stream: 5, unordered: true},
				{data: []byte(strings.Repeat("long", maxDatagram/2)), stream: 7}, // longer than the buffer
			}
			for _, m := range list {
				client.sends(m)
				endpoint.gets(m)
			}
			for range 2 { // two messages that wait are not one
				client.sends(list[0])
			}
			endpoint.gets(list[0])
			endpoint.gets(list[0])
			endpoint.sends(message{data: []byte("answer"), stream: 9, protocol: s1ap})
			client.gets(message{data: []byte("answer"), stream: 9, protocol: s1ap})
			// The client has fewer streams to receive on than the endpoint to send on: some share one.
			endpoint.sends(message{data: []byte("shared"), stream: maxStreams/2 + 2})
			client.gets(message{data: []byte("shared"), stream: 2})
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
			if m, err := receiveMessage(endpoint.raw, make([]byte, 10), endpoint.long); err != nil || len(m.data) > 0 {
				t.Errorf("at the end, the endpoint gets %q, %v", m.data, err)
			}
		})
	}
}

// An endpoint that does not read a long message holds up others for some time only.
func TestALongMessageThatStopsLeavesRoom(t *testing.T) {
	r := newRig(t)
	r.limits.message = time.Second
	r.long = make(chan struct{}, 1)
	long := message{data: []byte(strings.Repeat("long", maxDatagram/2)), stream: 3}
	client, endpoint := relayed(t, r, model.IPv4)
	ended := make(chan error, 1)
	go func() {
		for {
			if err := long.send(client.raw); err != nil {
				ended <- err
				return
			}
		}
	}()
	if !eventually(t, "a long message is under way", func() bool { return len(r.long) == 1 }) {
		return
	}
	time.Sleep(r.limits.message / 2) // the kernel's buffers are full
	other, atOther := relayed(t, r, model.IPv4)
	other.sends(long)
	atOther.gets(long)
	if err := <-ended; !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		t.Errorf("the client's error is %v", err)
	}
	for {
		m, err := receiveMessage(endpoint.raw, make([]byte, maxMessage), endpoint.long)
		if err == nil && len(m.data) > 0 {
			continue
		}
		if !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the endpoint gets %d bytes, %v", len(m.data), err)
		}
		break
	}
	eventually(t, "no long message is under way", func() bool { return len(r.long) == 0 })
}

func TestAnAbortedAssociationAborts(t *testing.T) {
	client, endpoint := relayed(t, newRig(t), model.IPv4)
	reset(client.TCPConn)
	if _, err := receiveMessage(endpoint.raw, make([]byte, 10), endpoint.long); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the endpoint of an aborted association gets %v", err)
	}
}

func TestConnectSCTPFails(t *testing.T) {
	closed, err := listenSCTP(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) {
		t.Skip("SCTP: this kernel has none")
	}
	if err != nil {
		t.Fatal(err)
	}
	to := closed.Addr().(*net.TCPAddr).AddrPort()
	_ = closed.Close()
	if c, err := connectSCTP(t.Context(), to, 1); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("to a closed port: %v, %v", c, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	silent := netip.MustParseAddrPort("192.0.2.1:9") // for documentation: nobody answers
	if c, err := connectSCTP(ctx, silent, 1); err == nil {
		t.Errorf("to an address that does not answer: %v", c)
	}
}

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// Opens begins connections of TCP at a rate that an emulated machine bears: a SYN by a raw socket, which the
// endpoint's kernel answers with SYN and ACK, and the client's kernel, which has no such connection, resets. No program
// acts for a single connection, while [Load] takes a goroutine and a thread for each.
type Opens struct {
	// Rate is in connections a second. It must be positive.
	Rate int
	// From is an IPv4 address of the client's.
	From netip.Addr
	To   netip.AddrPort
	// Patience is how long the last answers may take; 20 seconds if zero.
	Patience time.Duration
}

// OpensReport is the result of Opens.
type OpensReport struct {
	Elapsed  time.Duration // in which SYNs were sent
	Sent     int
	Answered int
	Late     time.Duration // by how much sending fell behind the rate, at worst
	Waited   time.Duration // for the last answers
}

// Lost is the number of connections that had no answer.
func (r OpensReport) Lost() int { return r.Sent - r.Answered }

// String is one line for people.
func (r OpensReport) String() string {
	return fmt.Sprintf("%d connections opened in %v, %d lost; at most %v behind the rate, the last answers after %v",
		r.Sent, r.Elapsed.Round(time.Millisecond), r.Lost(), r.Late.Round(time.Millisecond), r.Waited.Round(time.Millisecond))
}

const (
	opensFirstPort = 1024
	opensPorts     = 1<<16 - opensFirstPort
	opensPeriod    = 5 * time.Millisecond // between two bursts
	opensBuffer    = 64 << 20             // for answers that come while this process does not run
)

// Run opens connections from the namespace until ctx ends, and waits for the last answers. A port is used again after
// 64,512 connections.
func (o Opens) Run(ctx context.Context, ns *Namespace) (r OpensReport, err error) {
	var raw *net.IPConn
	err = ns.Do(func() (err error) {
		raw, err = net.DialIP("ip4:tcp", &net.IPAddr{IP: o.From.AsSlice()}, &net.IPAddr{IP: o.To.Addr().AsSlice()})
		return err
	})
	if err != nil {
		return r, fmt.Errorf("open connections from %s: %w", ns.name, err)
	}
	if err := growBuffer(raw, opensBuffer); err != nil {
		return r, errors.Join(err, raw.Close())
	}
	conn := ipv4.NewPacketConn(raw)
	var answered atomic.Int64
	ended := make(chan error, 1)
	go func() { ended <- o.count(conn, &answered) }()

	err = o.send(ctx, conn, &r)
	patience := o.Patience
	if patience <= 0 {
		patience = 20 * time.Second
	}
	begin := time.Now()
	for int(answered.Load()) < r.Sent && time.Since(begin) < patience {
		time.Sleep(opensPeriod)
	}
	r.Waited, r.Answered = time.Since(begin), int(answered.Load())
	return r, errors.Join(err, raw.Close(), <-ended)
}

// growBuffer gives a socket room, by force if the privilege is there: net.core.rmem_max is the machine's.
func growBuffer(conn *net.IPConn, bytes int) error {
	socket, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = socket.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes)
		if errors.Is(failed, unix.EPERM) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
		}
	})
	return errors.Join(err, failed)
}

// send sends what is due, in bursts.
func (o Opens) send(ctx context.Context, conn *ipv4.PacketConn, r *OpensReport) error {
	start := time.Now()
	tick := time.NewTicker(opensPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.Elapsed = time.Since(start)
			return nil
		case <-tick.C:
		}
		interval := time.Second / time.Duration(o.Rate)
		now := time.Since(start)
		r.Late = max(r.Late, now-time.Duration(r.Sent)*interval)
		var burst []ipv4.Message
		for due := int(now / interval); r.Sent+len(burst) < due; {
			burst = append(burst, ipv4.Message{Buffers: [][]byte{o.syn(r.Sent + len(burst))}})
		}
		for len(burst) > 0 {
			n, err := conn.WriteBatch(burst, 0)
			if errors.Is(err, unix.ENOBUFS) {
				break // earlier ones are still on their way: the rest is late
			}
			if err != nil {
				return fmt.Errorf("send a SYN: %w", err)
			}
			r.Sent += n
			burst = burst[n:]
		}
	}
}

// syn is the first segment of a connection, whose number is its sequence number.
func (o Opens) syn(number int) []byte {
	const flag = 2
	from := netip.AddrPortFrom(o.From, uint16(opensFirstPort+number%opensPorts)) //nolint:gosec // below 65,536
	return Segment{From: from, To: o.To, Seq: uint32(number), Flags: flag}.marshal()
}

// count counts connections that were answered, by the number that an answer acknowledges, until conn is closed.
func (o Opens) count(conn *ipv4.PacketConn, answered *atomic.Int64) error {
	const batch, segment, synAck = 256, 128, 2 | 16
	messages := make([]ipv4.Message, batch)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, segment)}
	}
	seen := map[uint32]bool{}
	for {
		n, err := conn.ReadBatch(messages, 0)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read answers: %w", err)
		}
		for _, m := range messages[:n] {
			b := m.Buffers[0][:m.N]
			if len(b) == 0 {
				continue
			}
			if header := int(b[0]&0xf) * 4; len(b) >= header+tcpHeaderLen { // of IP, which is there with a raw socket
				b = b[header:]
			} else {
				continue
			}
			number := binary.BigEndian.Uint32(b[8:]) - 1
			if binary.BigEndian.Uint16(b) == o.To.Port() && b[13]&synAck == synAck && !seen[number] {
				seen[number] = true
				answered.Add(1)
			}
		}
	}
}

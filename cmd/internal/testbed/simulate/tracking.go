package simulate

import (
	"encoding/binary"
	"errors"
	"iter"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// tracking is a connection of a daemon to the kernel's connection tracking. Like a kernel before Linux 5.8, it lists
// all flows of a family.
type tracking struct {
	d       *daemon
	answers []netlink.Message
	late    atomic.Bool // the deadline is over
	slow    *rand.Rand
}

// leastList is the least time that a list of flows takes: it ends at another moment than an Apply.
const leastList = 600 * time.Nanosecond

// takes lets some of the time pass that a list of flows takes. Rounds go on meanwhile.
func (t *tracking) takes() {
	most := []time.Duration{1, time.Millisecond, 100 * time.Millisecond, 3 * time.Second}
	time.Sleep(leastList + time.Duration(t.slow.Int64N(int64(most[t.slow.IntN(len(most))]))))
}

// track opens a connection to connection tracking.
func (d *daemon) track() (*netlink.Conn, error) {
	if d.isDead() {
		return nil, unix.EBADF
	}
	d.tracked++
	return netlink.NewConn(&tracking{d: d, slow: rand.New(rand.NewPCG(uint64(d.number), d.tracked))}, 1), nil
}

var errTracking = errors.New("connection tracking has a storm")

// Send implements [netlink.Socket]: a message asks for a list, or deletes a flow.
func (t *tracking) Send(m netlink.Message) error {
	const get = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	if m.Header.Type == get+1 {
		return t.SendMessages([]netlink.Message{m})
	}
	if m.Header.Type != get || m.Header.Flags&netlink.Dump != netlink.Dump {
		return unix.EINVAL
	}
	t.takes()
	defer t.takes()
	w := t.d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.d.dead {
		return unix.EBADF
	}
	if w.stormy() {
		return errTracking
	}
	for _, f := range w.flows {
		if protocolOf[model.FamilyOf(f.Dest.Addr())] == m.Data[0] {
			t.answers = append(t.answers, f.message(m.Header.Sequence))
		}
	}
	t.answers = append(t.answers, netlink.Message{
		Header: netlink.Header{Type: netlink.Done, Flags: netlink.Multi, Sequence: m.Header.Sequence}, Data: make([]byte, 4),
	})
	return nil
}

// SendMessages implements [netlink.Socket]: each message deletes a flow.
func (t *tracking) SendMessages(list []netlink.Message) error {
	w := t.d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.d.dead {
		return unix.EBADF
	}
	for _, m := range list {
		var errno unix.Errno
		switch {
		case w.stormy():
			errno = unix.EBUSY
		case !w.untrack(idOf(m)):
			errno = unix.ENOENT
		}
		t.answers = append(t.answers, netlink.Message{
			Header: netlink.Header{Type: netlink.Error, Sequence: m.Header.Sequence},
			Data:   append(binary.NativeEndian.AppendUint32(nil, -uint32(errno)), make([]byte, unix.SizeofNlMsghdr)...),
		})
	}
	return nil
}

// stormy reports whether a message to connection tracking fails. The caller holds the mutex.
func (w *world) stormy() bool {
	w.faulty.Lock()
	defer w.faulty.Unlock()
	return w.faults.storms()
}

// Receive implements [netlink.Socket].
func (t *tracking) Receive() ([]netlink.Message, error) {
	if t.late.Load() || len(t.answers) == 0 {
		return nil, os.ErrDeadlineExceeded
	}
	m := t.answers[0]
	t.answers = t.answers[1:]
	return []netlink.Message{m}, nil
}

// ReceiveIter implements [netlink.Socket].
func (t *tracking) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		list, err := t.Receive()
		if err != nil {
			yield(netlink.Message{}, err)
			return
		}
		yield(list[0], nil)
	}
}

// Close implements [netlink.Socket].
func (t *tracking) Close() error { return nil }

// SetDeadline is for netlink.Conn.
func (t *tracking) SetDeadline(at time.Time) error { return t.SetReadDeadline(at) }

// SetReadDeadline ends waiting for answers.
func (t *tracking) SetReadDeadline(at time.Time) error {
	t.late.Store(!at.IsZero() && !time.Now().Before(at))
	return nil
}

// SetWriteDeadline is for netlink.Conn.
func (t *tracking) SetWriteDeadline(time.Time) error { return nil }

// message returns a flow as the kernel lists it.
func (f flow) message(sequence uint32) netlink.Message {
	const translated, answered = 1 << 5, 1 << 1 // IPS_DST_NAT, IPS_SEEN_REPLY
	from := netip.AddrPortFrom(f.Source, f.SourcePort)
	status := uint32(answered)
	if f.isTranslated() {
		status |= translated
	}
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	ae.Nested(nl.CTA_TUPLE_ORIG, tupleOf(f.Protocol, from, f.Dest))
	ae.Nested(nl.CTA_TUPLE_REPLY, tupleOf(f.Protocol, f.to, from))
	ae.Uint32(nl.CTA_STATUS, status)
	ae.Uint32(nl.CTA_ID, f.id)
	attrs, err := ae.Encode()
	if err != nil {
		panic(err) // a bug of ours
	}
	return netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK << 8, Flags: netlink.Multi, Sequence: sequence},
		Data:   append([]byte{protocolOf[model.FamilyOf(f.Dest.Addr())], unix.NFNETLINK_V0, 0, 0}, attrs...),
	}
}

func tupleOf(p model.Protocol, from, to netip.AddrPort) func(*netlink.AttributeEncoder) error {
	return func(ae *netlink.AttributeEncoder) error {
		ae.ByteOrder = binary.BigEndian
		ae.Nested(nl.CTA_TUPLE_IP, func(ae *netlink.AttributeEncoder) error {
			source, dest := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
			if to.Addr().Is6() {
				source, dest = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
			}
			ae.Bytes(source, from.Addr().AsSlice())
			ae.Bytes(dest, to.Addr().AsSlice())
			return nil
		})
		ae.Nested(nl.CTA_TUPLE_PROTO, func(ae *netlink.AttributeEncoder) error {
			ae.ByteOrder = binary.BigEndian
			ae.Uint8(nl.CTA_PROTO_NUM, uint8(p))
			ae.Uint16(nl.CTA_PROTO_SRC_PORT, from.Port())
			ae.Uint16(nl.CTA_PROTO_DST_PORT, to.Port())
			return nil
		})
		return nil
	}
}

// idOf returns the id in a message that deletes a flow; 0: it has none.
func idOf(m netlink.Message) uint32 {
	ad, err := netlink.NewAttributeDecoder(m.Data[nl.SizeofNfgenmsg:])
	if err != nil {
		return 0
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		if ad.Type() == nl.CTA_ID {
			return ad.Uint32()
		}
	}
	return 0
}

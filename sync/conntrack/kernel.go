package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// Messages, from linux/netfilter/nfnetlink_conntrack.h.
const (
	msgMake   = unix.NFNL_SUBSYS_CTNETLINK << 8
	msgGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	msgDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
)

const (
	// bufferSize is the largest datagram of a dump.
	bufferSize = 32 << 10
	// patience bounds the time for the deletion of a flow.
	patience = 10 * time.Second
)

// deletion identifies a flow by the tuple of its replies and by its id, a hash of the entry's address and of the
// original tuple, so that a newer flow is never deleted.
func (f *flow) deletion() (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Nested(nl.CTA_TUPLE_REPLY, func(ae *netlink.AttributeEncoder) error {
		return encodeTuple(ae, f.protocol, f.replySource, f.replyDest)
	})
	ae.Bytes(nl.CTA_ID, binary.BigEndian.AppendUint32(nil, f.id))
	return message(msgDelete, netlink.Request|netlink.Acknowledge, model.FamilyOf(f.dest.Addr()), ae)
}

func encodeTuple(ae *netlink.AttributeEncoder, p model.Protocol, from, to netip.AddrPort) error {
	src, dst := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
	if from.Addr().Is6() {
		src, dst = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	ae.Nested(nl.CTA_TUPLE_IP, func(ae *netlink.AttributeEncoder) error {
		ae.Bytes(src, from.Addr().AsSlice())
		ae.Bytes(dst, to.Addr().AsSlice())
		return nil
	})
	ae.Nested(nl.CTA_TUPLE_PROTO, func(ae *netlink.AttributeEncoder) error {
		ae.Uint8(nl.CTA_PROTO_NUM, uint8(p))
		ae.Bytes(nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, from.Port()))
		ae.Bytes(nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, to.Port()))
		return nil
	})
	return nil
}

func message(
	kind netlink.HeaderType, flags netlink.HeaderFlags, f model.Family, ae *netlink.AttributeEncoder,
) (netlink.Message, error) {
	attrs, err := ae.Encode()
	if err != nil {
		return netlink.Message{}, err
	}
	genmsg := [nl.SizeofNfgenmsg]byte{unix.AF_INET, unix.NFNETLINK_V0} // then a resource id, unused
	if f == model.IPv6 {
		genmsg[0] = unix.AF_INET6
	}
	return netlink.Message{
		Header: netlink.Header{Type: kind, Flags: flags},
		Data:   append(genmsg[:], attrs...),
	}, nil
}

// table is the connection tracking table of a network namespace. Its connections stay open from their first use on: the
// kernel accepts no nftables batch while it ends one (nft_rcv_nl_event).
type table struct {
	dial             func() (*netlink.Conn, error)
	dumps, deletions *netlink.Conn // nil: not open. A dump must not mix with other replies
}

// thisKernel returns a function that opens connections to this machine's kernel, in a network namespace.
func thisKernel(netNS int) func() (*netlink.Conn, error) {
	return func() (*netlink.Conn, error) {
		c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netNS, MessageBufferSize: bufferSize})
		if err != nil {
			return nil, fmt.Errorf("open netfilter netlink: %w", err)
		}
		return c, nil
	}
}

func (t *table) close() {
	for _, c := range []**netlink.Conn{&t.dumps, &t.deletions} {
		if *c != nil {
			_ = (*c).Close()
			*c = nil
		}
	}
}

// interrupt makes a dump fail, so that its rest is not read.
func interrupt(dump *netlink.Conn) { _ = dump.SetReadDeadline(time.Unix(1, 0)) }

// sweep deletes the stale flows of a family and, unless it is 0, of a protocol. When ctx ends, it fails. After an
// error, the next sweep has new connections, because an answer may not have arrived yet.
func (t *table) sweep(ctx context.Context, of model.Family, only model.Protocol, stale func(*flow) bool) (
	seen, deleted int, err error,
) {
	if t.dumps == nil {
		if t.dumps, err = t.dial(); err != nil {
			return 0, 0, err
		}
	}
	dumps := t.dumps
	stop := context.AfterFunc(ctx, func() { interrupt(dumps) })
	seen, deleted, err = t.sweepAll(of, only, stale)
	if !stop() { // the deadline is over from now on
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		t.close()
	}
	return seen, deleted, err
}

// listing returns the request for the flows of a family and, unless it is 0, of a protocol. Kernels before Linux 5.8
// list those of all protocols.
func listing(of model.Family, only model.Protocol) (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	if only != 0 {
		ae.Nested(nl.CTA_TUPLE_ORIG, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(nl.CTA_TUPLE_PROTO, func(ae *netlink.AttributeEncoder) error {
				ae.Uint8(nl.CTA_PROTO_NUM, uint8(only))
				return nil
			})
			return nil
		})
		ae.Nested(ctaFilter, func(ae *netlink.AttributeEncoder) error {
			ae.Uint32(ctaFilterOrigFlags, filterProtocol)
			return nil
		})
	}
	return message(msgGet, netlink.Request|netlink.Dump, of, ae)
}

// flows yields the flows of a listing. A caller that stops early must call interrupt first, or the rest would still be
// read.
func (t *table) flows(of model.Family, only model.Protocol) iter.Seq2[flow, error] {
	return func(yield func(flow, error) bool) {
		fail := func(err error) { yield(flow{}, fmt.Errorf("list %v flows: %w", of, err)) }
		m, err := listing(of, only)
		if err == nil {
			_, err = t.dumps.Send(m)
		}
		if err != nil {
			fail(err)
			return
		}
		for m, err := range t.dumps.ReceiveIter() {
			if err != nil {
				fail(err)
				return
			}
			f, err := parseFlow(m.Data)
			if err != nil {
				interrupt(t.dumps)
				fail(err)
				return
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

// delete deletes a flow, and reports whether it still existed.
func (t *table) delete(f *flow) (deleted bool, err error) {
	if t.deletions == nil {
		if t.deletions, err = t.dial(); err != nil {
			return false, err
		}
	}
	m, err := f.deletion()
	if err == nil {
		err = t.deletions.SetReadDeadline(time.Now().Add(patience))
	}
	if err == nil {
		_, err = t.deletions.SendMessages([]netlink.Message{m})
	}
	if err == nil {
		_, err = t.deletions.Receive()
	}
	switch {
	case errors.Is(err, os.ErrNotExist): // it ended by itself
		return false, nil
	case err != nil:
		return false, fmt.Errorf("delete a flow: %w", err)
	}
	return true, nil
}

func (t *table) sweepAll(of model.Family, only model.Protocol, stale func(*flow) bool) (seen, deleted int, err error) {
	var refused error   // the last one; others hardly differ
	listed := new(flow) // one for all: stale is a function value, so that each of its arguments is on the heap
	for f, err := range t.flows(of, only) {
		if err != nil {
			return seen, deleted, err
		}
		seen++
		*listed = f
		if !stale(listed) {
			continue
		}
		switch ok, err := t.delete(listed); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			interrupt(t.dumps)
			return seen, deleted, err
		case err != nil: // the others may go
			refused = err
		case ok:
			deleted++
		}
	}
	return seen, deleted, refused
}

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
	msgMake   = unix.NFNL_SUBSYS_CTNETLINK << 8 // also the type of events
	msgGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	msgDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
)

const (
	// chunk is how many flows are deleted with one system call, and kept in memory.
	chunk = 64
	// bufferSize is the largest datagram of a dump.
	bufferSize = 32 << 10
	// patience bounds the time for the deletion of a chunk.
	patience = 10 * time.Second
)

// query selects the flows of a family that the kernel lists. Before Linux 5.8 the kernel
// ignores it and lists all flows, so each one is checked again.
type query struct {
	family   model.Family
	protocol model.Protocol // 0: any

	// early selects flows that are neither translated nor answered. Before Linux 5.14, the kernel
	// ignores that alone.
	early bool
}

func (q query) String() string {
	if q.early {
		return fmt.Sprintf("unanswered %v", q.family)
	}
	return fmt.Sprintf("%v %v", q.family, q.protocol)
}

func (q query) matches(f *flow) bool { return q.protocol == 0 || f.protocol == q.protocol }

// queries returns the queries that find all flows that a pass looks for.
func (w work) queries(f model.Family) (list []query) {
	if w.streams {
		list = append(list, query{family: f, protocol: model.TCP}, query{family: f, protocol: model.SCTP})
	}
	if w.udp {
		list = append(list, query{family: f, protocol: model.UDP})
	}
	if w.early {
		list = append(list, query{family: f, early: true})
	}
	return list
}

func (q query) message() (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	if q.protocol != 0 {
		ae.Nested(nl.CTA_TUPLE_ORIG, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(nl.CTA_TUPLE_PROTO, func(ae *netlink.AttributeEncoder) error {
				ae.Uint8(nl.CTA_PROTO_NUM, uint8(q.protocol))
				return nil
			})
			return nil
		})
		ae.Nested(ctaFilter, func(ae *netlink.AttributeEncoder) error {
			ae.Uint32(ctaFilterOrigFlags, filterProtocol)
			return nil
		})
	}
	if q.early {
		ae.Bytes(nl.CTA_STATUS, binary.BigEndian.AppendUint32(nil, 0))
		ae.Bytes(ctaStatusMask, binary.BigEndian.AppendUint32(nil, ipsSeenReply|ipsDstNAT))
	}
	return message(msgGet, netlink.Request|netlink.Dump, q.family, ae)
}

// filterProtocol is a bit of ctaFilterOrigFlags, from the kernel's net/netfilter/nf_internals.h.
const filterProtocol = 1 << 3

// deletion identifies a flow by the tuple of its replies and by its id, a hash of the entry's
// address and of the original tuple. A newer flow is therefore never deleted: with the same
// original tuple it would also need the same endpoint as reply source.
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

func message(kind netlink.HeaderType, flags netlink.HeaderFlags, f model.Family, ae *netlink.AttributeEncoder) (netlink.Message, error) {
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

// table accesses the connection tracking table of a network namespace.
type table struct {
	dumps, deletions *netlink.Conn // two sockets, as a dump must not mix with other replies
	ask              func(query) (netlink.Message, error)
}

// kernel has the table of a network namespace open from the first sweep on. The end of a netlink
// connection to netfilter is not free: the kernel first destroys the objects of earlier nftables
// batches, and accepts no batch meanwhile (nft_rcv_nl_event).
type kernel struct {
	dial  func() (*netlink.Conn, error)
	table *table // nil if it is not open
}

// thisKernel returns a function that opens connections to this machine's kernel, in a network namespace.
func thisKernel(netNS int) func() (*netlink.Conn, error) {
	return func() (*netlink.Conn, error) {
		return netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netNS, MessageBufferSize: bufferSize})
	}
}

// sweep is [table.sweep]. After an error, the next sweep has new connections, because an answer
// may still be on its way.
func (k *kernel) sweep(ctx context.Context, queries []query, stale func(*flow) bool) (seen, deleted int, err error) {
	if k.table == nil {
		if k.table, err = openTable(k.dial); err != nil {
			return 0, 0, err
		}
	}
	err = k.table.during(ctx, func() (err error) {
		seen, deleted, err = k.table.sweep(queries, stale)
		return err
	})
	if err != nil {
		k.close()
	}
	return seen, deleted, err
}

func (k *kernel) close() {
	if k.table != nil {
		k.table.close()
		k.table = nil
	}
}

func openTable(dial func() (*netlink.Conn, error)) (*table, error) {
	t := table{ask: query.message}
	var err error
	if t.dumps, err = dial(); err != nil {
		return nil, fmt.Errorf("open netfilter netlink: %w", err)
	}
	if t.deletions, err = dial(); err != nil {
		_ = t.dumps.Close()
		return nil, fmt.Errorf("open netfilter netlink: %w", err)
	}
	return &t, nil
}

func (t *table) close() {
	_ = t.dumps.Close()
	_ = t.deletions.Close()
}

// interrupt makes a dump fail, so that its rest is not read.
func (t *table) interrupt() { _ = t.dumps.SetReadDeadline(time.Unix(1, 0)) }

// during calls do, whose dumps fail when ctx ends. It fails, too, if ctx has ended by then: from now on, the
// deadline is over.
func (t *table) during(ctx context.Context, do func() error) error {
	stop := context.AfterFunc(ctx, t.interrupt)
	err := do()
	if !stop() {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// flows yields the kernel's flows for a query. A caller that stops early must call interrupt
// first, or the rest would still be read.
func (t *table) flows(q query) iter.Seq2[flow, error] {
	return func(yield func(flow, error) bool) {
		fail := func(err error) { yield(flow{}, fmt.Errorf("list %v flows: %w", q, err)) }
		m, err := t.ask(q)
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
				t.interrupt()
				fail(err)
				return
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

// errRefused is an error of a single deletion; the others may have succeeded.
var errRefused = errors.New("kernel refused to delete a flow")

// delete deletes flows, at most chunk of them, and returns how many of them still existed.
func (t *table) delete(flows []flow) (deleted int, err error) {
	messages := make([]netlink.Message, len(flows))
	for i := range flows {
		if messages[i], err = flows[i].deletion(); err != nil {
			return 0, err
		}
	}
	if err := t.deletions.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := t.deletions.SendMessages(messages); err != nil {
		return 0, fmt.Errorf("delete %d flows: %w", len(flows), err)
	}
	var refused error // the last one; others hardly differ
	for range messages {
		switch _, err := t.deletions.Receive(); {
		case err == nil:
			deleted++
		case errors.Is(err, os.ErrNotExist): // it ended by itself
		case errors.Is(err, os.ErrDeadlineExceeded):
			return deleted, fmt.Errorf("delete %d flows: no response from the kernel: %w", len(flows), err)
		default:
			refused = fmt.Errorf("%w: %w", errRefused, err)
		}
	}
	return deleted, refused
}

// sweep deletes the stale flows among those that the queries find. It keeps at most a chunk of them in memory.
func (t *table) sweep(queries []query, stale func(*flow) bool) (seen, deleted int, err error) {
	found := make([]flow, 0, chunk)
	var refused error // does not stop the deletion of other flows
	flush := func() error {
		if len(found) == 0 {
			return nil
		}
		n, err := t.delete(found)
		deleted += n
		found = found[:0]
		if errors.Is(err, errRefused) {
			refused, err = err, nil
		}
		return err
	}
	unfiltered := false
	listed := new(flow) // one for all: stale is a function value, so that each of its arguments is on the heap
	for _, q := range queries {
		if unfiltered {
			break // this kernel has listed all flows
		}
		for f, err := range t.flows(q) {
			if err != nil {
				return seen, deleted, err
			}
			seen++
			*listed = f
			unfiltered = unfiltered || !q.matches(listed)
			if !stale(listed) {
				continue
			}
			if found = append(found, f); len(found) < chunk {
				continue
			}
			if err := flush(); err != nil {
				t.interrupt()
				return seen, deleted, err
			}
		}
	}
	if err := flush(); err != nil {
		return seen, deleted, err
	}
	return seen, deleted, refused
}

package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"
	timo "github.com/ti-mo/conntrack"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// Event is a change of a connection.
type Event struct {
	Change Change
	Entry
}

// Change is the kind of an event.
type Change string

// The changes.
const (
	Began   Change = "new" // the first packet left, or came to a process
	Changed Change = "update"
	Ended   Change = "destroy"
)

// Watch keeps the events of the connections to one destination.
type Watch struct {
	conn *netlink.Conn
	done chan struct{}

	mu      sync.Mutex
	clients map[netip.AddrPort][]Event
	order   []netip.AddrPort // of clients, the oldest first
	missing error            // why events are missing; nil: none are known to be
}

const (
	// watchedClients bounds the clients of which a Watch keeps events, and watchedEvents those of one.
	watchedClients, watchedEvents = 4096, 16
	// watchBuffer has room for some thousand events that the Watch has not read.
	watchBuffer = 4 << 20
)

// NewWatch begins to listen to the events about connections to dest, whose port may be 0 for all, and from
// source, which may be the zero Addr for all. Those of others do not reach this process. netNS is a file
// descriptor of a network namespace; 0: this thread's.
func NewWatch(netNS int, p model.Protocol, source netip.Addr, dest netip.AddrPort) (*Watch, error) {
	filter, err := bpf.Assemble(eventFilter(p, source, dest))
	if err != nil {
		return nil, fmt.Errorf("filter of connection tracking's events: %w", err)
	}
	conn, err := thisKernel(netNS)()
	if err != nil {
		return nil, err
	}
	err = errors.Join(conn.SetBPF(filter), conn.SetReadBuffer(watchBuffer))
	for _, group := range []uint32{
		unix.NFNLGRP_CONNTRACK_NEW, unix.NFNLGRP_CONNTRACK_UPDATE, unix.NFNLGRP_CONNTRACK_DESTROY,
	} {
		err = errors.Join(err, conn.JoinGroup(group))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to connection tracking: %w", err), conn.Close())
	}
	w := &Watch{conn: conn, done: make(chan struct{}), clients: map[netip.AddrPort][]Event{}}
	go w.run()
	return w, nil
}

// Latest returns a connection as its events left it, and whether there was one. The last event has no
// state of TCP, and not each has the answer.
func Latest(events []Event) (e Entry, ok bool) {
	for _, next := range events {
		state, answered := e.State, e.Answered
		e = next.Entry
		if e.State == "" {
			e.State = state
		}
		e.Answered = e.Answered || answered
	}
	return e, len(events) > 0
}

// Close ends the Watch.
func (w *Watch) Close() {
	_ = w.conn.Close()
	<-w.done
}

// errLost is why events are missing that came faster than they were read.
var errLost = errors.New("there were more events of connection tracking than room for them")

// Of returns the events of a client's connection so far. If some are missing, of any connection, the error says why.
func (w *Watch) Of(client netip.AddrPort) (events []Event, missing error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.clients[client]), w.missing
}

func (w *Watch) miss(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missing = why
}

func (w *Watch) run() {
	defer close(w.done)
	for {
		messages, err := w.conn.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			w.miss(errLost)
		case err != nil: // also at its Close
			w.miss(fmt.Errorf("events of connection tracking could not be read: %w", err))
			return
		}
		for _, m := range messages {
			if e, ok := eventOf(m); ok {
				w.add(e)
			}
		}
	}
}

func (w *Watch) add(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list, known := w.clients[e.Source]
	switch {
	case len(list) == watchedEvents:
		return
	case known:
	case len(w.order) == watchedClients:
		delete(w.clients, w.order[0])
		w.order = append(w.order[1:], e.Source)
	default:
		w.order = append(w.order, e.Source)
	}
	w.clients[e.Source] = append(list, e)
}

// eventOf reads a message.
func eventOf(m netlink.Message) (Event, bool) {
	var e timo.Event
	if err := e.Unmarshal(m); err != nil || e.Flow == nil {
		return Event{}, false
	}
	change := Changed
	switch e.Type {
	case timo.EventNew:
		change = Began
	case timo.EventDestroy:
		change = Ended
	}
	return Event{change, entryOf(e.Flow)}, true
}

// eventFilter is a program of the socket that accepts the messages of some connections.
func eventFilter(p model.Protocol, source netip.Addr, dest netip.AddrPort) []bpf.Instruction {
	from, to := uint32(nl.CTA_IP_V4_SRC), uint32(nl.CTA_IP_V4_DST)
	if dest.Addr().Is6() {
		from, to = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	var f messageFilter
	f.require(to, nl.CTA_TUPLE_IP, dest.Addr().AsSlice())
	f.require(nl.CTA_PROTO_NUM, nl.CTA_TUPLE_PROTO, []byte{byte(p)})
	if dest.Port() != 0 {
		f.require(nl.CTA_PROTO_DST_PORT, nl.CTA_TUPLE_PROTO, binary.BigEndian.AppendUint16(nil, dest.Port()))
	}
	if source.IsValid() {
		f.require(from, nl.CTA_TUPLE_IP, source.AsSlice())
	}
	return append(f, bpf.RetConstant{Val: math.MaxUint32})
}

type messageFilter []bpf.Instruction

// require accepts messages alone whose attribute of the original tuple, in one of its two parts, has a value.
func (f *messageFilter) require(attribute, part uint32, value []byte) {
	const attributes = unix.SizeofNlMsghdr + nl.SizeofNfgenmsg // where they begin
	refuse := bpf.RetConstant{}
	*f = append(*f, bpf.LoadConstant{Dst: bpf.RegA, Val: attributes})
	for i, kind := range []uint32{nl.CTA_TUPLE_ORIG, part, attribute} {
		find := bpf.ExtNetlinkAttrNested
		if i == 0 {
			find = bpf.ExtNetlinkAttr
		}
		*f = append(*f, bpf.LoadConstant{Dst: bpf.RegX, Val: kind}, bpf.LoadExtension{Num: find},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1}, refuse)
	}
	*f = append(*f, bpf.TAX{})
	for at := 0; at < len(value); {
		size, want := 4, uint32(0)
		if len(value)-at < size {
			size = len(value) - at
		}
		for _, b := range value[at : at+size] {
			want = want<<8 | uint32(b)
		}
		*f = append(*f, bpf.LoadIndirect{Off: uint32(unix.SizeofNlAttr + at), Size: size},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: want, SkipTrue: 1}, refuse)
		at += size
	}
}

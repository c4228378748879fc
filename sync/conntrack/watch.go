package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"
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

	protocol model.Protocol
	source   netip.Addr
	dest     netip.AddrPort

	mu      sync.Mutex
	clients map[netip.AddrPort][]Event
	missing error // why events are missing; nil: none are known to be
}

const (
	// watchedClients bounds the clients of which a Watch keeps events, and watchedEvents those of one. It forgets all
	// clients when there is one too many.
	watchedClients, watchedEvents = 4096, 16
	// watchBuffer has room for some thousand events that the Watch has not read.
	watchBuffer = 4 << 20
)

// NewWatch begins to listen to the events about connections to dest, whose port may be 0 for all, and from
// source, which may be the zero Addr for all. netNS is a file descriptor of a network namespace; 0: this thread's.
func NewWatch(netNS int, p model.Protocol, source netip.Addr, dest netip.AddrPort) (*Watch, error) {
	conn, err := thisKernel(netNS)()
	if err != nil {
		return nil, err
	}
	err = conn.SetReadBuffer(watchBuffer)
	for _, group := range []uint32{
		unix.NFNLGRP_CONNTRACK_NEW, unix.NFNLGRP_CONNTRACK_UPDATE, unix.NFNLGRP_CONNTRACK_DESTROY,
	} {
		err = errors.Join(err, conn.JoinGroup(group))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to connection tracking: %w", err), conn.Close())
	}
	w := &Watch{
		conn: conn, done: make(chan struct{}), protocol: p, source: source, dest: dest,
		clients: map[netip.AddrPort][]Event{},
	}
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

func (w *Watch) run() {
	defer close(w.done)
	for {
		messages, err := w.conn.Receive()
		lost := errors.Is(err, unix.ENOBUFS)
		w.mu.Lock()
		switch {
		case lost:
			w.missing = errLost
		case err != nil: // also at its Close
			w.missing = fmt.Errorf("events of connection tracking could not be read: %w", err)
		}
		for _, m := range messages {
			if e, ok := w.eventOf(m); ok {
				w.add(e)
			}
		}
		w.mu.Unlock()
		if err != nil && !lost {
			return
		}
	}
}

func (w *Watch) add(e Event) {
	list, known := w.clients[e.Source]
	switch {
	case len(list) == watchedEvents:
		return
	case !known && len(w.clients) == watchedClients:
		clear(w.clients)
		w.missing = errLost
	}
	w.clients[e.Source] = append(list, e)
}

// eventOf reads a message. It returns false for a connection that is not wanted.
func (w *Watch) eventOf(m netlink.Message) (Event, bool) {
	f, err := parseFlow(m.Data)
	if err != nil || f.protocol != w.protocol || f.dest.Addr() != w.dest.Addr() ||
		w.dest.Port() != 0 && f.dest.Port() != w.dest.Port() || w.source.IsValid() && f.source.Addr() != w.source {
		return Event{}, false
	}
	change := Changed
	switch {
	case m.Header.Type == msgDelete:
		change = Ended
	case m.Header.Flags&(netlink.Create|netlink.Excl) != 0:
		change = Began
	}
	return Event{change, f.entry()}, true
}

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// observer receives the notifications of the kernel about programmed endpoints.
type observer struct {
	socket *netlink.Conn
	done   chan struct{}
	seen   chan struct{} // told of each endpoint that came, if there is room

	mu      sync.Mutex
	waiting map[netip.Addr]time.Time // endpoints that are to come, since when
	took    []time.Duration          // of those that came
	lost    bool                     // messages
}

// The multicast group for changes to nftables, and the size of the receive buffer.
const (
	groupNFTables  = 7 // NFNLGRP_NFTABLES
	observerBuffer = 256 << 20
)

// observe begins to listen. Then each transaction is slower, because the kernel writes a message
// for each element.
func (w *world) observe() (*observer, error) {
	o := &observer{
		done: make(chan struct{}), waiting: make(map[netip.Addr]time.Time), seen: make(chan struct{}, 1),
	}
	var err error
	if o.socket, err = w.netfilter(); err != nil {
		return nil, err
	}
	raw, err := o.socket.SyscallConn()
	if err == nil {
		err = o.socket.SetReadBuffer(observerBuffer)
	}
	if err == nil {
		err = o.socket.JoinGroup(groupNFTables)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("observe the kernel: %w", err), o.socket.Close())
	}
	go o.run(raw)
	return o, nil
}

// netfilter opens a netlink socket in the namespace.
func (w *world) netfilter() (socket *netlink.Conn, err error) {
	err = w.ns.Do(func() (err error) {
		socket, err = netlink.Dial(unix.NETLINK_NETFILTER, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("observe the kernel: %w", err)
	}
	return socket, nil
}

func (o *observer) close() {
	_ = o.socket.Close() // run ends with it
	<-o.done
}

// run listens until the socket is closed.
func (o *observer) run(raw syscall.RawConn) {
	defer close(o.done)
	buffer := make([]byte, 64<<10) // the kernel joins messages to a page or two
	for {
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, _, failed = unix.Recvfrom(int(fd), buffer, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		at := time.Now()
		switch {
		case err != nil:
			return
		case errors.Is(failed, unix.ENOBUFS):
			o.mu.Lock()
			o.lost = true
			o.mu.Unlock()
		case failed == nil:
			o.datagram(buffer[:n], at)
		}
	}
}

func (o *observer) datagram(b []byte, at time.Time) {
	const header = unix.SizeofNlMsghdr + 4 // and struct nfgenmsg
	for len(b) >= header {
		length := int(binary.NativeEndian.Uint32(b))
		if length < header || length > len(b) {
			return
		}
		kind, attrs := binary.NativeEndian.Uint16(b[4:]), b[header:length]
		b = b[min(len(b), align(length)):]
		if kind == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSETELEM {
			path := []uint16{unix.NFTA_SET_ELEM_LIST_ELEMENTS, unix.NFTA_LIST_ELEM, unix.NFTA_SET_ELEM_DATA, unix.NFTA_DATA_VALUE}
			descend(attrs, path, func(data []byte) { o.element(data, at) })
		}
	}
}

func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// descend finds attributes within attributes.
func descend(attrs []byte, path []uint16, found func([]byte)) {
	const header = 4 // struct nlattr
	for len(attrs) >= header {
		length := int(binary.NativeEndian.Uint16(attrs))
		if length < header || length > len(attrs) {
			return
		}
		if kind := binary.NativeEndian.Uint16(attrs[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER); kind == path[0] {
			if len(path) == 1 {
				found(attrs[header:length])
			} else {
				descend(attrs[header:length], path[1:], found)
			}
		}
		attrs = attrs[min(len(attrs), align(length)):]
	}
}

// element records that an endpoint is in a map. The data begins with its address.
func (o *observer) element(data []byte, at time.Time) {
	if len(data) != 8 { // of IPv4: address and port, padded to registers
		return
	}
	addr := netip.AddrFrom4([4]byte(data))
	o.mu.Lock()
	defer o.mu.Unlock()
	since, ok := o.waiting[addr]
	if !ok {
		return
	}
	delete(o.waiting, addr)
	o.took = append(o.took, at.Sub(since))
	select {
	case o.seen <- struct{}{}:
	default:
	}
}

// expect has an endpoint timed, from the beginning of its change.
func (o *observer) expect(addr netip.Addr, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting[addr] = since
}

// take returns the sorted times of the endpoints that were programmed since the last call.
func (o *observer) take() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	took := o.took
	o.took = nil
	slices.Sort(took)
	return took
}

// left returns the number of expected endpoints.
func (o *observer) left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting)
}

// giveUp returns the number of endpoints that were programmed too late, or never.
func (o *observer) giveUp() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer clear(o.waiting)
	return len(o.waiting)
}

// overrun reports whether notifications were lost.
func (o *observer) overrun() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

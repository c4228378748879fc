package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// observer receives the notifications of the kernel about programmed endpoints.
type observer struct {
	socket *netlink.Conn
	done   chan struct{}
	seen   chan struct{} // receives a value for each endpoint that came, if there is room

	mu      sync.Mutex
	waiting map[netip.Addr]time.Time // endpoints that are to come, since when
	took    []time.Duration          // of those that came
	lost    atomic.Bool              // messages
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
	err := w.ns.Do(func() (err error) {
		o.socket, err = netlink.Dial(unix.NETLINK_NETFILTER, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("observe the kernel: %w", err)
	}
	if err := errors.Join(o.socket.SetReadBuffer(observerBuffer), o.socket.JoinGroup(groupNFTables)); err != nil {
		return nil, errors.Join(fmt.Errorf("observe the kernel: %w", err), o.socket.Close())
	}
	go o.run()
	return o, nil
}

func (o *observer) close() {
	_ = o.socket.Close() // run ends with it
	<-o.done
}

// run listens until the socket is closed.
func (o *observer) run() {
	defer close(o.done)
	for {
		list, err := o.socket.Receive()
		at := time.Now()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			o.lost.Store(true)
		case err != nil:
			return
		}
		for _, m := range list {
			if len(m.Data) <= 4 { // struct nfgenmsg
				continue
			}
			switch uint16(m.Header.Type) {
			case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE:
				o.rule(m.Data[4:], at)
			case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM:
				descend(m.Data[4:], func(data []byte) { o.element(data, at) }, unix.NFTA_SET_ELEM_LIST_ELEMENTS,
					unix.NFTA_LIST_ELEM, unix.NFTA_SET_ELEM_DATA, unix.NFTA_DATA_VALUE)
			}
		}
	}
}

// descend finds attributes within attributes.
func descend(b []byte, found func([]byte), path ...uint16) {
	if len(path) == 0 {
		found(b)
		return
	}
	for attrs, err := netlink.NewAttributeDecoder(b); err == nil && attrs.Next(); {
		if attrs.Type() == path[0] {
			descend(attrs.Bytes(), found, path[1:]...)
		}
	}
}

// element records that an endpoint is in a map. The data begins with its address.
func (o *observer) element(data []byte, at time.Time) {
	if len(data) != 8 { // of IPv4: address and port, padded to registers
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.programmed(netip.AddrFrom4([4]byte(data)), at)
}

// rule records that an endpoint is in a rule: kube-proxy has a chain of its own for each, with the address as data.
func (o *observer) rule(attrs []byte, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for addr := range o.waiting {
		if bytes.Contains(attrs, addr.AsSlice()) {
			o.programmed(addr, at)
			return
		}
	}
}

func (o *observer) programmed(addr netip.Addr, at time.Time) {
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

// take ends a measurement: it returns the median and the 99th percentile of the times, in seconds, and how many
// endpoints were programmed too late, or never.
func (o *observer) take() (p50, p99 float64, missed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.Sort(o.took)
	p50, p99, missed = rounded(lab.Percentile(o.took, 50)), rounded(lab.Percentile(o.took, 99)), len(o.waiting)
	o.took = nil
	clear(o.waiting)
	return p50, p99, missed
}

// left returns the number of expected endpoints.
func (o *observer) left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting)
}

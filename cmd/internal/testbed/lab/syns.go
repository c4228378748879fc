package lab

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// SYNs are the first segments of connections, without the client's TCP: their cost is that of
// the path through the kernel, without sockets.
type SYNs struct {
	conn     *net.IPConn
	segments [][]byte
}

// OpenSYNs prepares one SYN from each of so many ports. The source address must be the
// namespace's.
func (ns *Namespace) OpenSYNs(from netip.Addr, to netip.AddrPort, count int) (*SYNs, error) {
	const firstPort, syn = 1024, 2
	s := &SYNs{}
	for i := range count {
		segment := Segment{From: netip.AddrPortFrom(from, uint16(firstPort+i)), To: to, Seq: 1, Flags: syn}
		s.segments = append(s.segments, segment.marshal())
	}
	err := ns.Do(func() (err error) {
		s.conn, err = net.DialIP(rawNetwork(from), &net.IPAddr{IP: from.AsSlice()}, &net.IPAddr{IP: to.Addr().AsSlice()})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("send segments from %s: %w", ns.name, err)
	}
	return s, nil
}

// Send sends all of them and returns the time for one, up to the end of its path: between
// namespaces of one kernel, the sending thread does the work of the whole path.
func (s *SYNs) Send() (time.Duration, error) {
	start := time.Now()
	for _, b := range s.segments {
		if _, err := s.conn.Write(b); err != nil {
			return 0, fmt.Errorf("send a segment: %w", err)
		}
	}
	return time.Since(start) / time.Duration(len(s.segments)), nil
}

// Close ends it.
func (s *SYNs) Close() { _ = s.conn.Close() }

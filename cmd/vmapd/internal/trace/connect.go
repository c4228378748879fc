package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

const thisNode = "this node"

// choosePort lets the kernel choose the port of a connection, so that it is known before the first packet. One that is
// free for TCP is rarely used for UDP.
func (t *Watch) choosePort() error {
	from := t.Filter.Source.Addr()
	return inside(t.from, func() error {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
		if err != nil {
			return err
		}
		t.Filter.Source = netip.AddrPortFrom(from, uint16(l.Addr().(*net.TCPAddr).Port))
		return l.Close()
	})
}

// dial makes a connection, and sends a full packet. It ends with the answer, or when the time to wait for it is over.
func (t *Watch) dial(ctx context.Context) error {
	return inside(t.from, func() error {
		network, from := "udp", net.Addr(net.UDPAddrFromAddrPort(t.Filter.Source))
		if t.Filter.Protocol == model.TCP {
			network, from = "tcp", net.TCPAddrFromAddrPort(t.Filter.Source)
		}
		d := net.Dialer{LocalAddr: from, Timeout: t.Wait}
		conn, err := d.DialContext(ctx, network, t.Filter.Dest.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if tcp, ok := conn.(*net.TCPConn); ok {
			t.in.OnlySmall = fill(ctx, tcp, min(t.Wait, fillTime))
			return nil
		}
		_ = conn.SetDeadline(time.Now().Add(t.Wait))
		if _, err = conn.Write([]byte("\n")); err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		return err
	})
}

const fillTime = time.Second

// fill sends as much as a full packet, and reports that it is not acknowledged in time, as where a smaller MTU on the
// path makes it vanish.
func fill(ctx context.Context, conn *net.TCPConn, within time.Duration) string {
	var info *unix.TCPInfo
	read := func() error {
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		_ = raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) })
		return err
	}
	if read() != nil {
		return ""
	}
	size := int(info.Snd_mss)
	if _, err := conn.Write(bytes.Repeat([]byte("\n"), size)); err != nil {
		return ""
	}
	const established, pause = 1, 5 * time.Millisecond // TCP_ESTABLISHED
	for end := time.Now().Add(within); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(pause) {
		if read() != nil || info.Unacked == 0 || info.State != established {
			return ""
		}
	}
	return fmt.Sprintf(". But a packet with %d bytes got no answer within %v, though small ones pass: "+
		"an MTU on the path is smaller, and no ICMP error says so", size, within)
}

// unseen returns why no hook has seen the connection that vmapd made, and that ended with an error, or none.
func (t *Watch) unseen(err error) error {
	end := outcome(err)
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		client := map[bool]string{true: thisNode, false: "the client"}[t.from == nil]
		return fmt.Errorf("no packet was sent: %s has no route to %v: it needs one that covers cluster IPs; "+
			"a default route is enough", client, t.Filter.Dest.Addr())
	case err != nil && end == err.Error():
		return fmt.Errorf("no packet was sent: %w", err)
	}
	return fmt.Errorf("no nftables hook of this node saw the connection (%s): a chain of the family netdev, tc, XDP or "+
		"eBPF handles its packets before, or the client's own network namespace does", end)
}

func outcome(err error) string {
	switch {
	case err == nil:
		return succeeded
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return err.Error()
}

// findNamespace returns the network namespace that has an address: nil is that of this process; others are those of
// processes, or have names in /run/netns. Without privilege, or without the node's processes (hostPID), none is seen.
func findNamespace(addr netip.Addr) (ns *os.File, name string, found bool) {
	has := func() error {
		list, err := net.InterfaceAddrs()
		found = slices.ContainsFunc(list, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(addr.AsSlice())
		})
		return err
	}
	if _ = has(); found {
		return nil, thisNode, true
	}
	named, _ := filepath.Glob("/run/netns/*") // the patterns are valid
	ofProcesses, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, path := range slices.Concat(named, ofProcesses) {
		ns, err := os.Open(path)
		if err != nil {
			continue
		}
		if err := inside(ns, has); err == nil && found {
			return ns, path, true
		}
		_ = ns.Close()
	}
	return nil, "", false
}

// inside calls a function in a network namespace; nil is that of this process.
func inside(ns *os.File, call func() error) error {
	if ns == nil {
		return call()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the client's network namespace: %w", err)
			return
		}
		done <- call()
	}()
	return <-done
}

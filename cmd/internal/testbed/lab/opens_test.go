package lab

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Opens counts each answered connection once, tells those that are lost, and so does the kernel.
func TestOpensCountsAnswers(t *testing.T) {
	w := newWorld(t, 1)
	p := w.Pods()[0]
	o := Opens{Rate: 500, From: netip.MustParseAddr(ClientIP4), To: netip.AddrPortFrom(p.IP4, port), Patience: 2 * time.Second}
	run := func() OpensReport {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		r, err := o.Run(ctx, w.Client)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(r)
		// A machine that is busy ends later.
		if due := int(float64(o.Rate)*r.Elapsed.Seconds()) + 1; r.Sent < 100 || r.Sent > due {
			t.Errorf("%d connections, want at most %d", r.Sent, due)
		}
		return r
	}
	if r := run(); r.Lost() != 0 {
		t.Errorf("%d lost", r.Lost())
	}
	const half = "table ip half { chain input { type filter hook input priority 0; tcp flags syn tcp sport 1024-1073 drop; }; }\n"
	nft := p.Command(t.Context(), "nft", "-f", "-")
	nft.Stdin = strings.NewReader(half)
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	if r := run(); r.Lost() != 50 {
		t.Errorf("want 50 lost, got %d", r.Lost())
	}
}

// What a socket has no room for is told with its number.
func TestLossesTellsWhereDatagramsWent(t *testing.T) {
	w := newWorld(t, 1)
	p := w.Pods()[0]
	losses := func() string {
		t.Helper()
		text, err := p.Losses()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if text := losses(); strings.Contains(text, "udp") {
		t.Errorf("losses without traffic: %s", text)
	}
	deaf := listenDeaf(t, p.Namespace)
	const many = 3000
	err := w.Client.Do(func() error { return shout(netip.AddrPortFrom(p.IP4, deaf), many) })
	if err != nil {
		t.Fatal(err)
	}
	text := losses()
	t.Log(text)
	if !strings.Contains(text, "RcvbufErrors") || !strings.Contains(text, "udp socket 00000000:") {
		t.Errorf("want lost datagrams, got %q", text)
	}
}

// listenDeaf returns the port of a socket that nobody reads.
func listenDeaf(t *testing.T, ns *Namespace) (port uint16) {
	t.Helper()
	err := ns.Do(func() error {
		c, err := net.ListenUDP("udp4", nil)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = c.Close() })
		port = c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// shout sends so many datagrams.
func shout(to netip.AddrPort, times int) error {
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	for range times {
		if _, err := c.Write(make([]byte, 1000)); err != nil {
			return err
		}
	}
	return nil
}

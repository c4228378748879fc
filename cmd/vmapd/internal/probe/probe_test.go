package probe

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/model"
)

// free returns an address of loopback on which nothing listens.
func free(t *testing.T, network, host string) netip.AddrPort {
	t.Helper()
	var at netip.AddrPort
	if network == "tcp" {
		l, err := net.Listen(network, host)
		if err != nil {
			t.Skip(err)
		}
		at = l.Addr().(*net.TCPAddr).AddrPort()
		_ = l.Close()
		return at
	}
	l, err := net.ListenPacket(network, host)
	if err != nil {
		t.Skip(err)
	}
	at = l.LocalAddr().(*net.UDPAddr).AddrPort()
	_ = l.Close()
	return at
}

func TestAnswersOfLoopback(t *testing.T) {
	for _, host := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", host)
		if err != nil {
			t.Log(err) // this machine lacks the family
			continue
		}
		defer func() { _ = l.Close() }()
		listens := l.Addr().(*net.TCPAddr).AddrPort()
		silent, err := net.ListenPacket("udp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent.Close() }()
		closedTCP, closedUDP := free(t, "tcp", host), free(t, "udp", host)

		p := Prober{Timeout: 200 * time.Millisecond}
		tcp := p.All(model.TCP, []netip.AddrPort{listens, closedTCP})
		udp := p.All(model.UDP, []netip.AddrPort{closedUDP, silent.LocalAddr().(*net.UDPAddr).AddrPort()})
		if tcp[0].Milliseconds <= 0 {
			t.Errorf("%v took %v ms", listens, tcp[0].Milliseconds)
		}
		tcp[0].Milliseconds = 0
		want := []explain.Answer{
			{Address: listens.String(), Result: explain.AnswerConnected},
			{Address: closedTCP.String(), Result: explain.AnswerRefused},
			{Address: closedUDP.String(), Result: explain.AnswerRefused, Detail: "ICMP error: port unreachable from " + closedUDP.Addr().String()},
			{Address: silent.LocalAddr().String(), Result: explain.AnswerSilent},
		}
		if diff := cmp.Diff(want, append(tcp, udp...)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// A server of UDP that answers.
func TestUDPReply(t *testing.T) {
	s, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	go func() {
		if _, from, err := s.ReadFrom(make([]byte, 1)); err == nil {
			_, _ = s.WriteTo([]byte("x"), from)
		}
	}()
	a := Prober{Timeout: 10 * time.Second}.All(model.UDP, []netip.AddrPort{s.LocalAddr().(*net.UDPAddr).AddrPort()})[0]
	if a.Result != explain.AnswerConnected {
		t.Errorf("got %+v", a)
	}
}

func TestICMPErrorsAreRead(t *testing.T) {
	message := func(origin, kind, code uint8, family uint16, addr ...byte) []byte {
		b := make([]byte, 16)
		b[4], b[5], b[6] = origin, kind, code
		sender := make([]byte, 28)
		binary.NativeEndian.PutUint16(sender, family)
		if unix.AF_INET == family {
			copy(sender[4:], addr)
		} else {
			copy(sender[8:], addr)
		}
		return append(b, sender...)
	}
	for _, tt := range []struct {
		b    []byte
		want string
	}{
		{message(unix.SO_EE_ORIGIN_ICMP, 3, 13, unix.AF_INET, 192, 168, 0, 9), "administratively prohibited (a firewall) 192.168.0.9"},
		{message(unix.SO_EE_ORIGIN_ICMP6, 1, 0, unix.AF_INET6, netip.MustParseAddr("fd00::1").AsSlice()...), "no route fd00::1"},
		{message(unix.SO_EE_ORIGIN_ICMP, 11, 0, unix.AF_INET, 192, 168, 0, 9), "type 11, code 0 192.168.0.9"},
		{message(unix.SO_EE_ORIGIN_LOCAL, 3, 13, unix.AF_INET, 192, 168, 0, 9), " 192.168.0.9"},
		{[]byte{1, 2, 3}, " invalid IP"},
	} {
		meaning, from := parseError(tt.b)
		if got := meaning + " " + from.String(); got != tt.want {
			t.Errorf("want %q, got %q", tt.want, got)
		}
	}
}

func TestNoNamespaceHasTheAddress(t *testing.T) {
	f, err := Find(netip.MustParseAddr("203.0.113.254"))
	if f != nil || err == nil || err.Error() != "no network namespace with the address 203.0.113.254 is visible here" {
		t.Errorf("got %v, %v", f, err)
	}
	if _, err := os.Stat("/proc/self/net/fib_trie"); err == nil && !listed("/proc/self/net", netip.MustParseAddr("127.0.0.1")) {
		t.Error("127.0.0.1 is not found")
	}
}

// bound returns a socket of SCTP on loopback, and its address.
func bound(t *testing.T) (fd int, at netip.AddrPort) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in := sa.(*unix.SockaddrInet4)
	return fd, netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
}

// Where the kernel has SCTP, a probe connects or is refused; elsewhere, the answer says that it has not.
func TestSCTP(t *testing.T) {
	p := Prober{Timeout: 5 * time.Second}
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP); err != nil {
		at := netip.MustParseAddrPort("127.0.0.1:9")
		want := []explain.Answer{{Address: at.String(), Result: explain.AnswerFailed, Detail: "this kernel has no SCTP (module sctp)"}}
		if diff := cmp.Diff(want, p.All(model.SCTP, []netip.AddrPort{at})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		return
	} else if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	listening, listens := bound(t)
	if err := unix.Listen(listening, 1); err != nil {
		t.Fatal(err)
	}
	_, closed := bound(t)
	got := p.All(model.SCTP, []netip.AddrPort{listens, closed})
	if got[0].Milliseconds <= 0 {
		t.Errorf("%v took %v ms", listens, got[0].Milliseconds)
	}
	got[0].Milliseconds = 0
	want := []explain.Answer{{Address: listens.String(), Result: explain.AnswerConnected}, {Address: closed.String(), Result: explain.AnswerRefused}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	t.Log("the kernel has SCTP")
}

package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
)

// world is a node with pods in its own network, and a machine outside. The address plan is
// that of exampleBuilder; outside is 203.0.113.1.
type world struct{ node, outside netns }

func newWorld(t testing.TB) world {
	t.Helper()
	w := world{newNetNS(t), newNetNS(t)}
	peer := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), w.outside.fd())
	w.node.ip(t, "link set lo up", "link add veth0 type veth peer name veth1 netns "+peer, "link set veth0 up",
		"addr add 203.0.113.2/24 dev veth0", "addr add fd00:203::2/64 dev veth0 nodad",
		"addr add 192.168.0.2 dev lo", "addr add fd00:192:168::2 dev lo nodad",
		"route add default dev lo", "-6 route add default dev lo")
	w.outside.ip(t, "link set veth1 up",
		"addr add 203.0.113.1/24 dev veth1", "addr add fd00:203::1/64 dev veth1 nodad",
		"route add default via 203.0.113.2", "-6 route add default via fd00:203::2")
	for pod := 2; pod <= 4; pod++ {
		for _, f := range model.Families {
			addr := podOf(f, pod).Addr()
			command := fmt.Sprintf("addr add %v dev lo", addr)
			if f == model.IPv6 {
				command += " nodad"
			}
			w.node.ip(t, command)
			w.node.serve(t, addr)
		}
	}
	return w
}

// ip runs ip commands in the namespace.
func (n netns) ip(t testing.TB, commands ...string) {
	t.Helper()
	n.do(t, func() error {
		for _, c := range commands {
			if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", c, err, out)
			}
		}
		return nil
	})
}

// serve echoes lines at port 8080 until the test ends.
func (n netns) serve(t testing.TB, addr netip.Addr) {
	t.Helper()
	at := netip.AddrPortFrom(addr, 8080)
	n.do(t, func() error {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		ended := make(chan struct{})
		t.Cleanup(func() {
			_ = l.Close()
			<-ended
		})
		go echoStreams(l, ended)
		return nil
	})
}

func echoStreams(l net.Listener, ended chan<- struct{}) {
	defer close(ended)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}()
	}
}

// dial connects from the namespace.
func (n netns) dial(t testing.TB, network, addr string) (c net.Conn) {
	t.Helper()
	n.do(t, func() error {
		var err error
		c, err = net.DialTimeout(network, addr, 5*time.Second)
		return err
	})
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// talk has some words with who is at the other end.
func talk(t testing.TB, c net.Conn) {
	t.Helper()
	r := bufio.NewReader(c)
	for range 3 {
		if _, err := fmt.Fprintln(c, "hello"); err != nil {
			t.Fatal(err)
		}
		if got, err := r.ReadString('\n'); err != nil || got != "hello\n" {
			t.Fatalf("%v answered %q, %v", c.RemoteAddr(), got, err)
		}
	}
}

// connections makes so many new connections, each with some words.
func (n netns) connections(t testing.TB, count int, network, addr string) {
	t.Helper()
	var open []net.Conn // so that none gets the port of another: a UDP flow that connection tracking knows is not new
	for range count {
		c := n.dial(t, network, addr)
		talk(t, c)
		open = append(open, c)
	}
	for _, c := range open {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// refused makes so many connections that must be refused.
func (n netns) refused(t testing.TB, count int, network, addr string) {
	t.Helper()
	n.do(t, func() error {
		for range count {
			c, err := net.DialTimeout(network, addr, 5*time.Second)
			if err == nil {
				return errors.Join(fmt.Errorf("%s took a connection", addr), c.Close())
			}
			if !strings.Contains(err.Error(), "refused") {
				return err
			}
		}
		return nil
	})
}

// dropped sends so many packets that begin connections and that must get no answer.
func (n netns) dropped(t testing.TB, count int, network, addr string) {
	t.Helper()
	n.do(t, func() error {
		for range count {
			c, err := net.DialTimeout(network, addr, 300*time.Millisecond) // the packet is repeated after a second
			if err == nil {
				return errors.Join(fmt.Errorf("%s took a connection", addr), c.Close())
			}
			if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() { //nolint:errorlint // as net returns it
				return err
			}
		}
		return nil
	})
}

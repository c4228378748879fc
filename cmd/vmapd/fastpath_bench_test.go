package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/kernel"
)

// BenchmarkForwardedGigabyte reports the processor time of the whole machine, in seconds, for a gigabyte
// from a client to a pod: over TCP, whose packets are of up to 64 KiB in the lab, and in datagrams of
// 1,400 bytes. Each includes the time of sender and receiver. "direct" is the pod's own address.
//
// Nothing else must run on the machine: an emulated one is best.
func BenchmarkForwardedGigabyte(b *testing.B) {
	needFastPath(b)
	for _, way := range []struct {
		name, to string
		fast     bool
	}{{"direct", "", false}, {"usual path", "172.30.0.41:80", false}, {"fast path", "172.30.0.41:80", true}} {
		for _, network := range []string{"tcp4", "udp4"} {
			b.Run(network+"/"+way.name, func(b *testing.B) {
				w := forwarding(b, way.fast)
				pod := w.Pods()[0]
				to := way.to
				if to == "" {
					to = net.JoinHostPort(pod.IP4.String(), "8080")
				}
				stop := swallow(b, pod.Namespace)
				defer stop()
				conn := connectFor(b, w.Client, network, to)
				defer func() { _ = conn.Close() }()
				pour(b, conn, network, 1<<20) // until the connection takes the fast path
				const size = 64 << 20
				before, bytes := busy(b), 0
				for b.Loop() {
					pour(b, conn, network, size)
					bytes += size
				}
				b.ReportMetric((busy(b)-before).Seconds()*1e9/float64(bytes), "cpu-s/GB")
			})
		}
	}
}

// forwarding returns a world with a Service on one pod.
func forwarding(b *testing.B, fast bool) *lab.World {
	b.Helper()
	w, err := lab.New(b.Context(), lab.Config{Pods: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.Close() })
	var ns *os.File
	if err := w.Node.Do(func() (err error) { ns, err = os.Open("/proc/thread-self/ns/net"); return err }); err != nil {
		b.Fatal(err)
	}
	backend, err := kernel.Open(kernel.Options{NetNS: int(ns.Fd()), FastPath: fast})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = backend.Close(); _ = ns.Close() })
	chosen := make(chan []string, 1)
	follow(b, w.Node, func(names []string) { chosen <- names })
	backend.SetDevices(<-chosen)
	pod := w.Pods()[0]
	s := modeltest.Snapshot(labConfig(), modeltest.OurNode(), fastService(),
		modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns", 8080).Ready(pod.IP4.String()))
	if err := backend.Apply(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	return w
}

// swallow reads from connections, and answers each twentieth datagram with a byte.
func swallow(b *testing.B, pod *lab.Namespace) (stop func()) {
	b.Helper()
	var tcp net.Listener
	var udp net.PacketConn
	err := pod.Do(func() (err error) {
		if tcp, err = net.Listen("tcp4", ":8080"); err == nil {
			udp, err = net.ListenPacket("udp4", ":8080")
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	go func() {
		buffer := make([]byte, 2048)
		for n := 0; ; n++ {
			_, from, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			if n%every == every-1 {
				_, _ = udp.WriteTo(buffer[:1], from)
			}
		}
	}()
	return func() { _ = tcp.Close(); _ = udp.Close() }
}

// every is the number of datagrams that are sent before an answer is awaited.
const every = 20

func connectFor(b *testing.B, from *lab.Namespace, network, to string) (c net.Conn) {
	b.Helper()
	if err := from.Do(func() (err error) { c, err = net.Dial(network, to); return err }); err != nil {
		b.Fatal(err)
	}
	return c
}

// pour sends bytes.
func pour(b *testing.B, c net.Conn, network string, size int) {
	b.Helper()
	if network == "tcp4" {
		if _, err := io.CopyN(c, zeros{}, int64(size)); err != nil {
			b.Fatal(err)
		}
		return
	}
	datagram, answer := make([]byte, 1400), make([]byte, 1)
	for sent := 0; sent < size; {
		for range every {
			if _, err := c.Write(datagram); err != nil {
				b.Fatal(err)
			}
			sent += len(datagram)
		}
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(answer); err != nil {
			b.Fatal(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// busy is the time since the start that the processors were not idle.
func busy(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		b.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	const idle, iowait, ticks = 4, 5, 100 // fields of the line cpu; USER_HZ
	var sum int64
	for i, field := range strings.Fields(line) {
		if i == 0 || i == idle || i == iowait || i > 8 { // the last ones are parts of others
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(fmt.Errorf("/proc/stat: %w", err))
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks
}

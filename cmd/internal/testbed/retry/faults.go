package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// fault is what happens to endpoints.
type fault struct {
	name       string
	pods       []string // at fault
	annotation bool     // played once more with a Service that turns retry off
	begin      func(ctx context.Context, w *world) error
}

const dies = `table inet fault {
	chain in { type filter hook prerouting priority -400; policy drop; }
	chain out { type filter hook output priority -400; policy drop; }
}`

func firstPod() []string { return []string{"pod-1"} }

// nft gives nft commands in an endpoint.
func (w *world) nft(ctx context.Context, pod int, commands string) error {
	out, err := w.pod(pod).Command(ctx, "nft", commands).CombinedOutput()
	if err != nil {
		return fmt.Errorf("nft %s: %w\n%s", commands, err, out)
	}
	return nil
}

func silent() fault {
	return fault{name: "one is silent", pods: firstPod(), begin: func(ctx context.Context, w *world) error {
		return w.nft(ctx, 0, dies)
	}}
}

func refuses() fault {
	return fault{name: "one refuses", pods: firstPod(), begin: func(_ context.Context, w *world) error {
		w.servers["pod-1"].Close()
		return nil
	}}
}

// queueFull is a process that does not accept. The kernel drops first packets once its queue is full.
func queueFull() fault {
	return fault{name: "one accept queue is full", pods: firstPod(), begin: func(ctx context.Context, w *world) error {
		w.servers["pod-1"].Close()
		var fds []int
		w.undo = append(w.undo, func() {
			for _, fd := range fds {
				unix.Close(fd)
			}
		})
		socket := func() (int, error) {
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			fds = append(fds, fd)
			return fd, err
		}
		return w.pod(0).Do(func() error {
			at := &unix.SockaddrInet6{Port: podPort}
			fd, err := socket()
			reuse := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			if err := errors.Join(err, reuse, unix.Bind(fd, at), unix.Listen(fd, 1)); err != nil {
				return err
			}
			at.Addr[15] = 1
			for range 3 {
				if fd, err = socket(); err != nil {
					return err
				}
				if err := unix.Connect(fd, at); !errors.Is(err, unix.EINPROGRESS) {
					return err
				}
			}
			return lab.Pause(ctx, time.Second)
		})
	}}
}

// lossy loses one of five packets to each endpoint, and one of five of its own.
func lossy() fault {
	return fault{name: "20 % of packets are lost", begin: func(ctx context.Context, w *world) (err error) {
		for n := range w.r.endpoints {
			err = errors.Join(err, w.nft(ctx, n, `table inet fault {
				chain in { type filter hook prerouting priority -400; numgen random mod 5 0 drop; }
				chain out { type filter hook output priority -400; numgen random mod 5 0 drop; }
			}`))
		}
		return err
	}}
}

// nodeDies has two of four endpoints fall silent a quarter into the load, and answer again after half of it.
func nodeDies() fault {
	f := fault{name: "a Node dies and comes back", pods: []string{"pod-1", "pod-2"}}
	f.begin = func(ctx context.Context, w *world) error {
		step := func(commands string) {
			for n := range f.pods {
				if err := w.nft(ctx, n, commands); err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
		}
		time.AfterFunc(w.o.lasts/4, func() { step(dies) })                        //nolint:mnd // as said above
		time.AfterFunc(w.o.lasts*3/4, func() { step("delete table inet fault") }) //nolint:mnd // as said above
		return nil
	}
	return f
}

func late(d time.Duration) fault {
	return fault{
		name: fmt.Sprintf("one answers after %v", d), pods: firstPod(), annotation: true,
		begin: func(ctx context.Context, w *world) error { return w.delay(ctx, 0, d) },
	}
}

func allLate(d time.Duration) fault {
	f := fault{name: fmt.Sprintf("all answer after %v", d), annotation: true}
	f.begin = func(ctx context.Context, w *world) (err error) {
		for n := range w.r.endpoints {
			err = errors.Join(err, w.delay(ctx, n, d))
		}
		return err
	}
	return f
}

// delay has an endpoint send its packets later: they go out by a TUN device, and come in there again, to be forwarded.
func (w *world) delay(ctx context.Context, pod int, d time.Duration) error {
	var tun *os.File
	err := w.pod(pod).Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq("late")
		if err == nil {
			request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		tun = os.NewFile(uintptr(fd), "tun") // not before it has a device: the runtime polls it
		return err
	})
	if tun != nil {
		w.undo = append(w.undo, func() { _ = tun.Close() })
	}
	if err != nil {
		return fmt.Errorf("make a TUN device: %w", err)
	}
	out, err := w.pod(pod).Command(ctx, "sh", "-ec", `
		sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.accept_local=1
		ip link set late txqueuelen 10000 up
		for v in 4 6; do
			ip -$v rule add iif late lookup 100
			ip -$v route add table 100 $(ip -$v route show default)
			ip -$v route del default
			ip -$v route add default dev late
		done`).CombinedOutput()
	if err != nil {
		return fmt.Errorf("lead packets through the TUN device: %w\n%s", err, out)
	}
	go func() {
		for buffer := make([]byte, 1<<16); ; {
			n, err := tun.Read(buffer)
			if err != nil {
				return
			}
			packet := append([]byte(nil), buffer[:n]...)
			time.AfterFunc(d, func() { _, _ = tun.Write(packet) })
		}
	}()
	return nil
}

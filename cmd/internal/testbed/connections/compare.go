package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// The ways to connect.
const (
	direct = iota // to two other pods, in turn
	others        // to a Service of these
	all           // to a Service that the client's pod serves, too
	ways
)

// result is the number of connections a second for each way.
type result [ways]float64

const clients = 4

// compare measures all ways in turn.
func (w *world) compare(ctx context.Context, rounds int, turn time.Duration) (r result, err error) {
	pod := netip.MustParseAddr(lab.FirstPodIP4).Next()
	to := [ways][]netip.AddrPort{
		direct: {netip.AddrPortFrom(pod, directPort), netip.AddrPortFrom(pod.Next(), directPort)},
		others: {othersVIP},
		all:    {allVIP},
	}
	var rates [ways][]float64
	for round := range rounds {
		for i := range ways {
			way := (i + round) % ways
			start := time.Now()
			n, err := w.connect(ctx, turn, to[way]...)
			if err != nil {
				return r, err
			}
			rates[way] = append(rates[way], float64(n)/time.Since(start).Seconds())
		}
	}
	for way, list := range rates {
		slices.Sort(list)
		r[way] = list[len(list)/2]
	}
	return r, ctx.Err()
}

// connect has the clients in the first pod connect for some time, and returns the number of
// connections.
func (w *world) connect(ctx context.Context, turn time.Duration, to ...netip.AddrPort) (int, error) {
	end := time.Now().Add(turn)
	var counts [clients]int
	var errs [clients]error
	var wait sync.WaitGroup
	for i := range clients {
		wait.Go(func() {
			errs[i] = w.Pods()[0].Do(func() error {
				for ctx.Err() == nil && time.Now().Before(end) {
					if err := connectOnce(to[counts[i]%len(to)]); err != nil {
						return err
					}
					counts[i]++
				}
				return ctx.Err()
			})
		})
	}
	wait.Wait()
	sum := 0
	for i, n := range counts {
		if errs[i] != nil {
			return 0, errs[i]
		}
		sum += n
	}
	return sum, nil
}

// connectOnce makes a connection and resets it, so that its port is free at once.
func connectOnce(to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 5}); err != nil { // for connect
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
		return fmt.Errorf("connect to %v: %w", to, err)
	}
	return nil
}

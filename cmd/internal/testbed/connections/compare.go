package main

import (
	"context"
	"errors"
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

// result has the number of connections a second for each way.
type result struct {
	rates [ways]float64
	lost  int // connections of all ways that were refused, or not answered within connectTimeout
}

// connectTimeout is longer than the second after which the kernel sends a SYN again.
const connectTimeout = 3 * time.Second

var errLost = errors.New("refused or not answered")

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
			n, lost, err := w.connect(ctx, w.Pods()[0], turn, to[way]...)
			if err != nil {
				return r, err
			}
			r.lost += lost
			rates[way] = append(rates[way], float64(n)/time.Since(start).Seconds())
		}
	}
	for way, list := range rates {
		slices.Sort(list)
		r.rates[way] = list[len(list)/2]
	}
	return r, ctx.Err()
}

// connect has the clients in a pod connect for some time, and returns the number of connections, and
// of those that were lost.
func (w *world) connect(ctx context.Context, from *lab.Pod, turn time.Duration, to ...netip.AddrPort) (sum, lost int, err error) {
	end := time.Now().Add(turn)
	var made, unanswered [clients]int
	var errs [clients]error
	var wait sync.WaitGroup
	for i := range clients {
		wait.Go(func() {
			errs[i] = from.Do(func() error {
				for n := 0; ctx.Err() == nil && time.Now().Before(end); n++ {
					switch err := connectOnce(to[n%len(to)]); {
					case errors.Is(err, errLost):
						unanswered[i]++
					case err != nil:
						return err
					default:
						made[i]++
					}
				}
				return ctx.Err()
			})
		})
	}
	wait.Wait()
	for i := range clients {
		sum += made[i]
		lost += unanswered[i]
	}
	return sum, lost, errors.Join(errs[:]...)
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
	timeout := unix.NsecToTimeval(connectTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil { // for connect
		return err
	}
	// With a timeout, the kernel does not restart it behind the signals of Go's scheduler (signal(7)).
	for {
		err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
		if err == nil {
			return nil
		}
		if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EINPROGRESS) { // its time has passed (socket(7), SO_SNDTIMEO)
			return errLost
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("connect to %v: %w", to, err)
		}
	}
}

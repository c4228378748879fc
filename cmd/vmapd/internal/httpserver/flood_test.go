package httpserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// flood makes 1,000 connections a second for three seconds. Each sends some bytes and nothing
// more, and stays open as long as the server lets it.
func flood(t *testing.T, address, sends string) {
	t.Helper()
	const (
		rate = 1000
		all  = 3 * rate
		open = 1500 // at most, of this side: more than the server keeps
	)
	var conns [open]net.Conn
	made := 0
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); made < all; <-tick.C {
		for due := int(time.Since(begin).Seconds() * rate); made < min(due, all); made++ {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(c, sends) // the server may have closed it
			if last := conns[made%open]; last != nil {
				_ = last.Close()
			}
			conns[made%open] = c
		}
	}
}

// kubelet asks for a page again and again, each time by a new connection, until ctx ends. It
// returns how long the slowest answer took.
func kubelet(ctx context.Context, t *testing.T, client *http.Client, url string) (slowest time.Duration) {
	t.Helper()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		begin := time.Now()
		status, _, err := get(t, client, url)
		if err != nil || status != http.StatusOK {
			t.Errorf("a probe: status %d, %v", status, err)
		}
		slowest = max(slowest, time.Since(begin))
	}
	return slowest
}

// probeDuringFlood returns how long the slowest probe took.
func probeDuringFlood(t *testing.T, client *http.Client, url, address, sends string) (slowest time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var probes sync.WaitGroup
	probes.Go(func() { slowest = kubelet(ctx, t, client, url) })
	flood(t, address, sends)
	cancel()
	probes.Wait()
	return slowest
}

// Connections that say nothing, or nothing to the end, do not delay probes, though they come
// from the same address.
func TestProbesAreAnsweredDuringAFloodOfSilentConnections(t *testing.T) {
	const bound = 900 * time.Millisecond // the kubelet gives up after a second
	for _, tt := range []struct{ name, sends string }{
		{"nothing", ""},
		{"half a header", "GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			address := start(t, Options{Address: "127.0.0.1:0", Handler: says("ok")}).address()
			const attempts = 3 // other work of the machine may delay one
			for i := range attempts {
				slowest := probeDuringFlood(t, client, "http://"+address, address, tt.sends)
				t.Logf("the slowest probe took %v", slowest)
				if slowest <= bound {
					return
				}
				if i == attempts-1 {
					t.Errorf("the slowest probe took %v, want at most %v", slowest, bound)
				}
			}
		})
	}
}

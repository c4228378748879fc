package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// client is a machine with many addresses that connects to one address of the Service.
type client struct {
	name    string
	from    *lab.Namespace
	sources []netip.Addr
	to      netip.AddrPort
	dns     bool

	mu            sync.Mutex
	tally         tally
	before, after map[netip.Addr][]string // the endpoints that answered a source
}

// tally counts the connections of a client.
type tally struct {
	waits  []time.Duration // of those answered
	failed map[lab.Failure]int
}

func (t *tally) add(other *tally) {
	t.waits = append(t.waits, other.waits...)
	for kind, n := range other.failed {
		t.fail(kind, n)
	}
}

func (t *tally) fail(kind lab.Failure, n int) {
	if t.failed == nil {
		t.failed = map[lab.Failure]int{}
	}
	t.failed[kind] += n
}

// buckets are how many waited less than half a second, one, two, three, four to seven seconds, and longer.
func (t *tally) buckets() (n [6]int) {
	for _, d := range t.waits {
		switch seconds := int(d.Round(time.Second) / time.Second); {
		case seconds < 4:
			n[seconds]++
		case seconds <= 7:
			n[4]++
		default:
			n[5]++
		}
	}
	return n
}

// String are columns: connections, failed, how many waited how long, the longest wait.
func (t *tally) String() string {
	var longest time.Duration
	for _, d := range t.waits {
		longest = max(longest, d)
	}
	failed, kinds := 0, ""
	for kind, n := range t.failed {
		failed += n
		if kind != lab.Timeout {
			kinds += fmt.Sprintf(" (%d %s)", n, kind)
		}
	}
	columns := []string{fmt.Sprintf("%d | %d%s", len(t.waits)+failed, failed, kinds)}
	for _, n := range t.buckets() {
		columns = append(columns, strconv.Itoa(n))
	}
	return strings.Join(append(columns, fmt.Sprintf("%.2f s", longest.Seconds())), " | ")
}

// stays are the columns about endpoints that clients have again: before, after, and kept. Pods are those at fault.
func (c *client) stays(atFault []string) string {
	if c.before == nil {
		return " | | "
	}
	var one [2]int
	kept, healthy := 0, 0
	for _, source := range c.sources {
		var pods [2][]string
		for i, all := range []map[netip.Addr][]string{c.before, c.after} {
			if pods[i] = slices.Compact(all[source]); len(pods[i]) == 1 {
				one[i]++
			}
		}
		if !slices.Contains(atFault, pods[0][0]) {
			healthy++
			if slices.Equal(pods[0], pods[1]) {
				kept++
			}
		}
	}
	return fmt.Sprintf("%[1]d of %[2]d | %[3]d of %[2]d | %[4]d of %[5]d", one[0], len(c.sources), one[1], kept, healthy)
}

// load has a client connect from its addresses in turn.
func (c *client) load(ctx context.Context, o *options) {
	next := 0
	const noLimit = 1 << 20
	lab.Load{Rate: o.rate, Timeout: o.within, Limit: noLimit, Ask: func(ctx context.Context) (lab.Answer, error) {
		c.mu.Lock()
		source := c.sources[next%len(c.sources)]
		next++
		c.mu.Unlock()
		took, pod, err := c.ask(ctx, source)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.tally.fail(lab.FailureOf(err), 1)
		} else {
			c.tally.waits = append(c.tally.waits, took)
		}
		return lab.Answer{Pod: pod}, err
	}}.Run(ctx)
}

// askAll asks from each address some times, one after the other, and returns who answered.
func (c *client) askAll(ctx context.Context, times int, within time.Duration) (map[netip.Addr][]string, error) {
	answers, errs := map[netip.Addr][]string{}, []error(nil)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, source := range c.sources {
		wait.Go(func() {
			for range times {
				asking, cancel := context.WithTimeout(ctx, within)
				_, pod, err := c.ask(asking, source)
				cancel()
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				} else {
					answers[source] = append(answers[source], pod)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return answers, errors.Join(errs...)
}

// ask makes one connection, or asks three times as glibc does. It returns how long it took to connect, or to get an
// answer over UDP, and which pod answered.
func (c *client) ask(ctx context.Context, source netip.Addr) (took time.Duration, pod string, err error) {
	start := time.Now()
	if !c.dns {
		f, err := connect(ctx, c.from, source, c.to)
		if err != nil {
			return 0, "", err
		}
		defer f.Close()
		took = time.Since(start)
		if _, err := f.WriteString("once\n"); err != nil {
			return 0, "", err
		}
		answer, err := bufio.NewReader(f).ReadString('\n')
		pod, _, _ = strings.Cut(answer, " ")
		return took, pod, err
	}
	conn, err := c.from.DialFrom(ctx, netip.AddrPortFrom(source, 0), "udp", c.to)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	const queries, again = 3, 5 * time.Second
	var a lab.Answer
	for range queries {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), again)
		a, err = conn.Ask(asking)
		cancel()
		if err == nil {
			break
		}
	}
	return time.Since(start), a.Pod, err
}

// connect connects. Namespace.Dial keeps a thread meanwhile, and here thousands of connections wait.
func connect(ctx context.Context, ns *lab.Namespace, from netip.Addr, to netip.AddrPort) (f *os.File, err error) {
	domain := map[bool]int{true: unix.AF_INET, false: unix.AF_INET6}[from.Is4()]
	err = ns.Do(func() error {
		fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), "connection")
		return unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0)))
	})
	if f == nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	raw, rawErr := f.SyscallConn()
	if err = errors.Join(err, rawErr, f.SetDeadline(deadline)); err == nil {
		waitErr := raw.Write(func(fd uintptr) bool {
			err = unix.Connect(int(fd), sockaddr(to))
			return !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.EALREADY)
		})
		if waitErr != nil {
			err = waitErr
		} else if errors.Is(err, unix.EISCONN) {
			err = nil
		}
	}
	if err != nil {
		f.Close()
	}
	return f, err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

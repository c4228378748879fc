package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// The node's addresses in these tests, and the addresses of loopback where they are.
var onLoopback = map[string]string{
	"127.0.0.1":       "127.0.0.1",
	"192.168.0.2":     "127.0.0.2",
	"192.168.0.3":     "127.0.0.3",
	"192.168.0.4":     "127.0.0.4",
	"fd00:192:168::2": "::1",
}

// world is a cluster, and a Services on this machine's loopback that runs until stop.
type world struct {
	*testing.T
	*Services
	builder *model.Builder
	sick    atomic.Bool // the proxy
	log     testlog.Log
	stop    func()

	mu       sync.Mutex
	listens  int      // how often it was tried
	failures []string // what Failed was told, since failed was called
}

// newWorld returns a world with the Services running. All of its goroutines must be gone
// when the test ends.
func newWorld(t *testing.T, with ...func(*world)) *world {
	t.Helper()
	before := runtime.NumGoroutine()
	config := modeltest.Config()
	config.NodePortAddresses = model.NodePortAddresses{All: true}
	w := &world{T: t, builder: modeltest.Builder(config)}
	w.Services = NewServices(ServicesOptions{
		Healthy: func() bool { return !w.sick.Load() },
		Failed: func(s model.NamespacedName, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failures = append(w.failures, s.String()+": "+err.Error())
		},
		Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	w.listen = func(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
		w.mu.Lock()
		w.listens++
		w.mu.Unlock()
		if !at.Addr().IsUnspecified() {
			at = netip.AddrPortFrom(netip.MustParseAddr(onLoopback[at.Addr().String()]), at.Port())
		}
		return listenTCP(ctx, at)
	}
	for _, set := range with {
		set(w)
	}
	w.stop = testaid.Run(t, w.Services.Run)
	t.Cleanup(func() {
		w.stop()
		http.DefaultClient.CloseIdleConnections()
		testaid.WaitUntil(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	})
	return w
}

// service is a Service with a healthCheckNodePort.
func service(name string, port uint16) modeltest.Service {
	s := modeltest.NewService(name).Typed("LoadBalancer").On("172.30.0.41").TCP("http", 80).Policies("Cluster", "Local")
	s.HealthCheckNodePort = int32(port)
	return s
}

// local is the EndpointSlice of a Service with some endpoints that are ready on this node.
func local(service string, pods ...string) modeltest.Slice {
	_, name, _ := strings.Cut(service, "/")
	return modeltest.NewSlice(service+"-1", name).TCP("http", 8080).Local(pods...)
}

// set sets objects and tells of a round that programmed them.
func (w *world) set(objects ...modeltest.Object) {
	for _, o := range objects {
		o.Set(w.builder)
	}
	w.round()
}

func (w *world) remove(s modeltest.Service) {
	s.Delete(w.builder)
	w.round()
}

// round tells of a round that failed for some families.
func (w *world) round(failed ...model.Family) {
	r := reconcile.Round{Snapshot: w.builder.Snapshot()}
	for _, f := range failed {
		r.Err, r.Failed[f] = errors.New("no"), true
	}
	w.Done(r)
}

// on makes these the node's addresses.
func (w *world) on(addrs ...string) {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	w.builder.SetHostAddresses(list)
	w.round()
}

// opened returns how often it was tried to listen since the last call.
func (w *world) opened() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.listens
	w.listens = 0
	return n
}

// mustFail waits until exactly these failures were told since the last call.
func (w *world) mustFail(want ...string) {
	w.Helper()
	var got []string
	testaid.WaitUntil(w.T, "failures "+strings.Join(want, ", "), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		got = append(got, w.failures...)
		w.failures = nil
		return len(got) >= len(want)
	})
	testaid.Equal(w.T, "failures", want, got)
}

// mustSay waits until the answer on an address, with the port, is this one: "200", "503",
// or "refused", followed by the name of the Service.
func (w *world) mustSay(addr string, port uint16, want string) {
	w.Helper()
	testaid.WaitUntil(w.T, fmt.Sprintf("%s port %d says %q", addr, port, want), func() bool { return say(addr, port) == want })
}

func say(addr string, port uint16) string {
	r, err := ask(http.MethodGet, address(addr, port))
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case err != nil:
		return err.Error()
	}
	_, name, _ := strings.Cut(r.Body, `"name": "`)
	name, _, _ = strings.Cut(name, `"`)
	if r.Code == http.StatusOK {
		return "200 " + name
	}
	return "503 " + name
}

func address(addr string, port uint16) string {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), port).String()
}

// ask sends one request over a connection of its own.
func ask(method, at string) (response, error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	request, err := http.NewRequest(method, "http://"+at+"/any/path?and=more", nil)
	if err != nil {
		return response{}, err
	}
	r, err := c.Do(request)
	if err != nil {
		return response{}, err
	}
	defer hangUp(r.Body)
	body, err := io.ReadAll(r.Body)
	header := maps.Clone(r.Header)
	header.Del("Date")
	return response{r.StatusCode, header, string(body)}, err
}

// hangUp closes something where the error does not matter.
func hangUp(c io.Closer) { c.Close() }

// connect opens a connection without saying anything.
func connect(t *testing.T, at string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangUp(c) })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// mustClose fails unless the server closes a connection.
func mustClose(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that the server should close: %v", err)
	}
}

// request asks once on a connection that stays open, and returns the first line.
func request(t *testing.T, c net.Conn) string {
	t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// take listens on a port as another program would.
func take(t *testing.T, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangUp(l) })
	return l
}

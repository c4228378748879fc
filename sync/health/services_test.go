package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func body(endpoints int, healthy bool) string {
	return fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"ns1\",\n\t\t\"name\": \"web\"\n\t},\n"+
		"\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}", endpoints, healthy)
}

func TestAnswers(t *testing.T) {
	w := newWorld(t)
	port := freePorts(t, 1)[0]
	at := address("127.0.0.1", port)
	w.mustSay("127.0.0.1", port, "refused")
	for _, tt := range []struct {
		pods    []string
		healthy bool
		code    int
	}{
		{nil, true, 503},
		{[]string{"10.0.0.2"}, true, 200},
		{[]string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}, true, 200},
		{[]string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}, false, 503},
		{nil, false, 503},
		{[]string{"10.0.0.2"}, true, 200},
	} {
		w.sick.Store(!tt.healthy)
		w.set(service("ns1/web", port), local("ns1/web", tt.pods...))
		w.mustSay("127.0.0.1", port, fmt.Sprint(tt.code, " web"))
		want := response{tt.code, http.Header{
			"Content-Type":                     {"application/json"},
			"Content-Length":                   {fmt.Sprint(len(body(len(tt.pods), tt.healthy)))},
			"X-Content-Type-Options":           {"nosniff"},
			"X-Load-Balancing-Endpoint-Weight": {fmt.Sprint(len(tt.pods))},
		}, body(len(tt.pods), tt.healthy)}
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions, "ANY"} {
			var got response
			var err error
			w.eventually("the number of endpoints", func() bool {
				got, err = ask(method, at)
				return err != nil || got.Body == want.Body
			})
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", method, err, diff)
			}
		}
		want.Body = ""
		got, err := ask(http.MethodHead, at)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("HEAD: %v (-want +got):\n%s", err, diff)
		}
	}
	if got := w.opened(); got != 1 {
		t.Errorf("listened %d times, want once", got)
	}
}

func TestServicesComeAndGo(t *testing.T) {
	w := newWorld(t)
	p := freePorts(t, 4)
	w.set(service("ns1/a", p[0]), service("ns1/b", p[1]), local("ns1/b", "10.0.0.2"))
	w.mustSay("127.0.0.1", p[0], "503 a")
	w.mustSay("127.0.0.1", p[1], "200 b")
	open := connect(t, address("127.0.0.1", p[1]))
	w.set(service("ns1/c", p[2]))
	w.mustSay("127.0.0.1", p[2], "503 c")
	w.set(service("ns1/a", p[3])) // another port
	w.mustSay("127.0.0.1", p[3], "503 a")
	w.mustSay("127.0.0.1", p[0], "refused")
	if got := request(t, open); got != "HTTP/1.1 200 OK" {
		t.Errorf("a connection to a Service that did not change: %q", got)
	}
	w.remove(service("ns1/b", p[1]))
	w.mustSay("127.0.0.1", p[1], "refused")
	mustClose(t, open)
	w.set(service("ns1/c", p[2]).Policies("Cluster", "Cluster")) // without health checks
	w.mustSay("127.0.0.1", p[2], "refused")
	w.mustFail()
}

// dual is a Service of both families.
func dual(name string, port uint16) modeltest.Service {
	return service(name, port).On("172.30.0.41", "fd00:172:30::29")
}

// local6 is as local, of IPv6.
func local6(service string, pods ...string) modeltest.Slice {
	s := local(service, pods...).IPv6()
	s.Name += "-ipv6"
	return s
}

func needIPv6(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no ::1: %v", err)
	}
	hangUp(l)
}

func TestBothFamilies(t *testing.T) {
	needIPv6(t)
	w := newWorld(t)
	p := freePorts(t, 2)
	w.set(dual("ns1/web", p[0]), local("ns1/web", "10.0.0.2"), service("ns1/four", p[1]))
	for _, addr := range []string{"127.0.0.1", "127.0.0.7"} {
		w.mustSay(addr, p[0], "200 web")
		w.mustSay(addr, p[1], "503 four")
	}
	w.mustSay("::1", p[0], "503 web") // it has no endpoint there
	w.mustSay("::1", p[1], "refused") // it is not in that family
	if got := w.opened(); got != 3 {
		t.Errorf("listened %d times, want once for each family of a Service", got)
	}
	w.set(local6("ns1/web", "fd00:10::2", "fd00:10::3"), local("ns1/web"))
	w.mustSay("127.0.0.1", p[0], "503 web")
	w.mustSay("::1", p[0], "200 web")
	w.set(service("ns1/web", p[0]))
	w.mustSay("::1", p[0], "refused")
	w.mustSay("127.0.0.1", p[0], "503 web")
	w.set(dual("ns1/web", p[0]))
	w.mustSay("::1", p[0], "200 web")
	w.mustFail()
}

// Somebody else may own the table of one family. The other one works.
func TestAFamilyThatFailsDoesNotStopTheOther(t *testing.T) {
	needIPv6(t)
	w := newWorld(t)
	p := freePorts(t, 2)
	dual("ns1/web", p[0]).Set(w.builder)
	local("ns1/web", "10.0.0.2").Set(w.builder)
	local6("ns1/web", "fd00:10::2").Set(w.builder)
	w.round(model.IPv6)
	w.mustSay("127.0.0.1", p[0], "200 web")
	w.mustSay("::1", p[0], "refused")
	w.round()
	w.mustSay("::1", p[0], "200 web")
	dual("ns1/web", p[1]).Set(w.builder)
	w.round(model.IPv4)
	w.mustSay("::1", p[1], "200 web")
	w.mustSay("::1", p[0], "refused")
	w.mustSay("127.0.0.1", p[0], "200 web")
	w.mustSay("127.0.0.1", p[1], "refused")
	w.round(model.IPv4, model.IPv6)
	w.mustSay("127.0.0.1", p[0], "200 web")
	w.round()
	w.mustSay("127.0.0.1", p[1], "200 web")
	w.mustSay("127.0.0.1", p[0], "refused")
}

func TestAFailedRoundChangesNothing(t *testing.T) {
	w := newWorld(t)
	p := freePorts(t, 2)
	w.set(service("ns1/web", p[0]), local("ns1/web", "10.0.0.2"))
	w.mustSay("127.0.0.1", p[0], "200 web")
	local("ns1/web").Set(w.builder)
	service("ns1/more", p[1]).Set(w.builder)
	w.round(model.IPv4)
	w.SetRestricted(true) // has Run look at what there is: no addresses
	w.mustSay("127.0.0.1", p[0], "refused")
	w.SetRestricted(false)
	w.mustSay("127.0.0.1", p[0], "200 web")
	w.mustSay("127.0.0.1", p[1], "refused")
	w.round()
	w.mustSay("127.0.0.1", p[0], "503 web")
	w.mustSay("127.0.0.1", p[1], "503 more")
}

func restricted(w *world) { w.SetRestricted(true) }

func TestListenersMoveWithTheAddresses(t *testing.T) {
	w := newWorld(t, restricted)
	port := freePorts(t, 1)[0]
	w.on("192.168.0.2", "192.168.0.3")
	w.set(service("ns1/web", port))
	w.mustSay("127.0.0.2", port, "503 web")
	w.mustSay("127.0.0.3", port, "503 web")
	for _, other := range []string{"127.0.0.1", "127.0.0.4"} {
		w.mustSay(other, port, "refused")
	}
	stays, goes := connect(t, address("127.0.0.2", port)), connect(t, address("127.0.0.3", port))
	w.on("192.168.0.2", "192.168.0.4")
	w.mustSay("127.0.0.4", port, "503 web")
	w.mustSay("127.0.0.3", port, "refused")
	if got := request(t, stays); got != "HTTP/1.1 503 Service Unavailable" {
		t.Errorf("on an address that stays: %q", got)
	}
	mustClose(t, goes)
	if got := w.opened(); got != 3 {
		t.Errorf("listened %d times, want once for each address", got)
	}

	w.SetRestricted(false)
	for _, any := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		w.mustSay(any, port, "503 web")
	}
	mustClose(t, stays)
	w.SetRestricted(true)
	w.mustSay("127.0.0.1", port, "refused")
	w.mustSay("127.0.0.2", port, "503 web")
	w.on("192.168.0.3")
	w.mustSay("127.0.0.3", port, "503 web")
	w.mustSay("127.0.0.2", port, "refused")
	w.mustFail()
}

func TestAddresses(t *testing.T) {
	config := modeltest.Config()
	config.NodePortAddresses = model.NodePortAddresses{All: true}
	b := modeltest.Builder(config)
	b.SetHostAddresses([]netip.Addr{
		netip.MustParseAddr("192.168.0.3"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.168.0.2"),
		netip.MustParseAddr("fd00:192:168::2"), netip.MustParseAddr("::1"),
	})
	equal := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	for f, want := range map[model.Family][]netip.Addr{
		model.IPv4: {netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("192.168.0.3")},
		model.IPv6: {netip.MustParseAddr("fd00:192:168::2")},
	} {
		if diff := cmp.Diff(want, addresses(b.Snapshot().Family(f), true), equal); diff != "" {
			t.Errorf("%v, restricted (-want +got):\n%s", f, diff)
		}
		if diff := cmp.Diff([]netip.Addr{f.Unspecified()}, addresses(b.Snapshot().Family(f), false), equal); diff != "" {
			t.Errorf("%v, on all (-want +got):\n%s", f, diff)
		}
	}
}

func TestAPortThatIsTaken(t *testing.T) {
	w := newWorld(t)
	p := freePorts(t, 2)
	other := take(t, fmt.Sprintf(":%d", p[0]))
	w.set(service("ns1/a", p[0]), service("ns1/b", p[1]))
	w.mustSay("127.0.0.1", p[1], "503 b")
	w.mustFail(fmt.Sprintf("ns1/a: listen on port %d over IPv4: bind: address already in use", p[0]))
	w.set(local("ns1/b", "10.0.0.2")) // tries again, without a new message
	w.mustSay("127.0.0.1", p[1], "200 b")
	w.mustFail()
	hangUp(other)
	w.mustSay("127.0.0.1", p[0], "503 a") // without a round
	w.mustFail()
	for _, want := range []string{
		`level=WARN msg="cannot listen on health-check port; retrying" service=ns1/a`,
		`level=INFO msg="listening on health-check port again" service=ns1/a`,
	} { // the line may come after the first answer
		if !w.eventually(want, func() bool { return strings.Count(w.log.String(), want) == 1 }) {
			t.Errorf("not once in the log: %s\n%s", want, w.log.String())
		}
	}
}

func TestAnAddressThatIsTaken(t *testing.T) {
	w := newWorld(t, restricted)
	port := freePorts(t, 1)[0]
	other := take(t, address("127.0.0.3", port))
	w.on("192.168.0.2", "192.168.0.3", "192.168.0.4")
	w.set(service("ns1/web", port))
	w.mustSay("127.0.0.2", port, "503 web")
	w.mustSay("127.0.0.4", port, "503 web")
	w.mustFail(fmt.Sprintf("ns1/web: listen on 127.0.0.3:%d: bind: address already in use", port))
	hangUp(other)
	w.mustSay("127.0.0.3", port, "503 web")
}

func TestTwoServicesWithOnePort(t *testing.T) {
	w := newWorld(t)
	p := freePorts(t, 2)
	taken := func(loser string, port uint16, owner string) string {
		return fmt.Sprintf("%s: listen on port %d: also the healthCheckNodePort of Service %s", loser, port, owner)
	}
	w.set(service("ns1/b", p[0]))
	w.mustSay("127.0.0.1", p[0], "503 b")
	w.set(service("ns1/a", p[0])) // the one that has it keeps it
	w.mustFail(taken("ns1/a", p[0], "ns1/b"))
	w.set(service("ns1/d", p[0]), service("ns1/c", p[0]))
	w.mustFail(taken("ns1/c", p[0], "ns1/b"), taken("ns1/d", p[0], "ns1/b"))
	w.mustSay("127.0.0.1", p[0], "503 b")
	w.remove(service("ns1/b", p[0])) // the first by name gets it
	w.mustSay("127.0.0.1", p[0], "503 a")
	w.mustFail(taken("ns1/c", p[0], "ns1/a"), taken("ns1/d", p[0], "ns1/a"))
	w.set(service("ns1/a", p[1]))
	w.mustSay("127.0.0.1", p[0], "503 c")
	w.mustSay("127.0.0.1", p[1], "503 a")
	w.mustFail(taken("ns1/d", p[0], "ns1/c"))
	w.remove(service("ns1/d", p[0])) // it never had the port
	w.set(service("ns1/e", p[0]), local("ns1/c", "10.0.0.2"))
	w.mustFail(taken("ns1/e", p[0], "ns1/c"))
	w.mustSay("127.0.0.1", p[0], "200 c")
	w.remove(service("ns1/e", p[0])) // … and does not wait for it any more
	w.remove(service("ns1/c", p[0]))
	w.mustSay("127.0.0.1", p[0], "refused")
	w.set(service("ns1/f", p[0]))
	w.mustSay("127.0.0.1", p[0], "503 f")
	w.mustFail()
}

func TestServicesExchangeTheirPorts(t *testing.T) {
	w := newWorld(t)
	p := freePorts(t, 3)
	names := []string{"ns1/a", "ns1/b", "ns1/c"}
	for turn := range 4 {
		var objects []modeltest.Object
		for i, name := range names {
			objects = append(objects, service(name, p[(i+turn)%3]))
		}
		w.set(objects...)
		for i, name := range names {
			w.mustSay("127.0.0.1", p[(i+turn)%3], "503 "+strings.TrimPrefix(name, "ns1/"))
		}
	}
	w.mustFail()
}

// Load balancers keep connections; so there are some to be closed, and their addresses
// and ports linger in the kernel when the next process begins.
func TestTheNextProcessCanBindAtOnce(t *testing.T) {
	port := freePorts(t, 1)[0]
	for range 3 {
		w := newWorld(t)
		w.set(service("ns1/web", port))
		w.mustSay("127.0.0.1", port, "503 web")
		c := connect(t, address("127.0.0.1", port))
		request(t, c)
		w.stop()
		w.mustSay("127.0.0.1", port, "refused")
		mustClose(t, c)
		w.mustFail()
	}
}

func TestTheCostFollowsTheChange(t *testing.T) {
	w := newWorld(t)
	p := freePorts(t, 200)
	for i, port := range p {
		service(fmt.Sprintf("ns1/s%d", i), port).Set(w.builder)
	}
	w.round()
	w.mustSay("127.0.0.1", p[199], "503 s199")
	w.eventually("200 listeners", func() bool { return say("127.0.0.1", p[0]) == "503 s0" && w.count() == 200 })
	w.opened()
	w.set(local("ns1/s7", "10.0.0.2"))
	w.mustSay("127.0.0.1", p[7], "200 s7")
	w.set(service("ns1/s7", freePorts(t, 1)[0]))
	w.mustSay("127.0.0.1", p[7], "refused")
	w.stop()
	if got := w.opened(); got != 1 {
		t.Errorf("listened %d times for one port that changed", got)
	}
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listens
}

// stuck is a listener without clients.
type stuck struct{ closed chan struct{} }

func (s stuck) Accept() (net.Conn, error) {
	<-s.closed
	return nil, net.ErrClosed
}

func (s stuck) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

func (s stuck) Addr() net.Addr { return &net.TCPAddr{} }

// attempts notes when it was tried to listen. Until free, each fails.
type attempts struct {
	start time.Time

	mu   sync.Mutex
	at   []time.Duration
	free bool
}

func (a *attempts) listen(context.Context, netip.AddrPort) (net.Listener, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Since(a.start))
	if a.free {
		return stuck{make(chan struct{})}, nil
	}
	return nil, errors.New("taken")
}

func (a *attempts) setFree(free bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free = free
}

// after returns the attempts of so far, once d has passed.
func (a *attempts) after(d time.Duration) []time.Duration {
	time.Sleep(d)
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at)
}

func TestAPortThatIsTakenIsTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 0
		s := NewServices(ServicesOptions{
			Healthy: func() bool { return true },
			Failed:  func(model.NamespacedName, uint16, error) { failures++ },
		})
		a := &attempts{start: time.Now()}
		s.listen = a.listen
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		w := &world{T: t, Services: s, builder: modeltest.Builder(modeltest.Config())}
		w.set(service("ns1/web", 30000))
		const ms = time.Millisecond
		want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 5100 * ms, 7100 * ms, 9100 * ms}
		if diff := cmp.Diff(want, a.after(10*time.Second)); diff != "" {
			t.Errorf("tried at (-want +got):\n%s", diff)
		}
		w.round() // is an occasion, too
		want = append(want, 10*time.Second)
		if diff := cmp.Diff(want, a.after(0)); diff != "" {
			t.Errorf("with a round, tried at (-want +got):\n%s", diff)
		}
		a.setFree(true)
		want = append(want, 12*time.Second)
		if diff := cmp.Diff(want, a.after(time.Hour-10*time.Second)); diff != "" {
			t.Errorf("when it works, tried at (-want +got):\n%s", diff)
		}
		a.setFree(false)
		w.set(service("ns1/other", 30001)) // begins with short pauses again
		want = append(want, time.Hour, time.Hour+100*ms, time.Hour+300*ms)
		if diff := cmp.Diff(want, a.after(500*ms)); diff != "" {
			t.Errorf("for another Service, tried at (-want +got):\n%s", diff)
		}
		cancel()
		<-done
		if failures != 2 {
			t.Errorf("told of %d failures, want 2: one for each Service, as they stay the same", failures)
		}
	})
}

// Whatever the sockets do, a loop that tells of its rounds goes on.
func TestDoneDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServices(ServicesOptions{Healthy: func() bool { return true }})
		s.listen = func(ctx context.Context, _ netip.AddrPort) (net.Listener, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		w := &world{T: t, Services: s, builder: modeltest.Builder(modeltest.Config())}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		for i := range 10 {
			s.Queued(time.Now())
			w.set(service("ns1/web", uint16(30000+i)))
			synctest.Wait() // Run is where it waits for a socket
		}
		cancel()
		<-done
	})
}

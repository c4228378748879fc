package health

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func body(endpoints int, healthy bool) string {
	return fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"ns1\",\n\t\t\"name\": \"web\"\n\t},\n"+
		"\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}", endpoints, healthy)
}

func TestAnswers(t *testing.T) {
	w := newWorld(t)
	port := testaid.FreePorts(t, 1)[0]
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
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions, "ANY", http.MethodHead} {
			var got response
			var err error
			testaid.WaitUntil(t, "the number of endpoints", func() bool {
				got, err = ask(method, at)
				return err != nil || method == http.MethodHead || got.Body == want.Body
			})
			if method == http.MethodHead {
				want.Body = ""
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", method, err, diff)
			}
		}
	}
	if got := w.opened(); got != 1 {
		t.Errorf("listened %d times, want once", got)
	}
}

func TestServicesComeAndGo(t *testing.T) {
	w := newWorld(t)
	p := testaid.FreePorts(t, 4)
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
	p := testaid.FreePorts(t, 2)
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
	p := testaid.FreePorts(t, 2)
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

func TestListenersMoveWithTheAddresses(t *testing.T) {
	w := newWorld(t, func(w *world) { w.Restricted = true })
	port := testaid.FreePorts(t, 1)[0]
	w.on("127.0.0.1", "192.168.0.2", "192.168.0.3")
	w.set(service("ns1/web", port))
	w.mustSay("127.0.0.2", port, "503 web")
	w.mustSay("127.0.0.3", port, "503 web")
	w.mustSay("127.0.0.1", port, "refused")
	w.mustSay("127.0.0.4", port, "refused")
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
	w.mustFail()
}

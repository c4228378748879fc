package informer

import (
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

func TestConnect(t *testing.T) {
	s := standardServer(t, apitest.Options{})
	other := newServer(t, apitest.Options{})
	for _, tt := range []struct {
		name string
		conf Config
	}{
		{"from a kubeconfig", Config{Kubeconfig: kubeconfig(t, s, t.TempDir())}},
		{"with another master", Config{Kubeconfig: kubeconfig(t, other, t.TempDir()), Master: s.URL()}},
		{"with a master alone", Config{Master: s.URL()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(s.Requests(""))
			client, err := Connect(tt.conf)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Requests("")) != before {
				t.Error("Connect talks to the server")
			}
			if _, err := client.Node(t.Context(), "node1"); err != nil {
				t.Fatal(err)
			}
			last := s.Requests("")[before]
			if got := last.Header.Get("User-Agent"); got != rest.DefaultKubernetesUserAgent() {
				t.Errorf("User-Agent: %q", got)
			}
		})
	}
}

func TestConfigDefaults(t *testing.T) {
	conf, err := Config{Master: "http://192.0.2.1"}.REST()
	if err != nil {
		t.Fatal(err)
	}
	if conf.ContentType != "application/vnd.kubernetes.protobuf" ||
		conf.AcceptContentTypes != "application/vnd.kubernetes.protobuf,application/json" {
		t.Errorf("got %+v", conf)
	}
	conf, err = Config{Master: "http://192.0.2.1", ContentType: "application/json", QPS: -1, Burst: 7}.REST()
	if err != nil {
		t.Fatal(err)
	}
	if conf.QPS != -1 || conf.Burst != 7 || conf.ContentType != "application/json" || conf.AcceptContentTypes != "" {
		t.Errorf("got %+v", conf)
	}
}

func TestConnectErrors(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, tt := range []struct {
		name string
		conf Config
		want string
	}{
		{"outside of a pod", Config{}, "no kubeconfig and no master is given"},
		{"no such file", Config{Kubeconfig: "/none"}, "cannot read the kubeconfig /none: no such file"},
		{"nonsense", Config{Master: "http://192.0.2.1:x"}, "192.0.2.1:x"},
	} {
		if _, err := Connect(tt.conf); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: want an error with %q, got %v", tt.name, tt.want, err)
		}
	}
}

// A connection without answers ends within a minute, with a request on its way, or while only the server may
// send.
func TestASilentConnectionEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("short: takes 45 seconds")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		nettest.Missing(t, err)
	}
	t.Parallel()
	nettest.Enter(t)
	conf, err := Config{Master: "http://192.0.2.1"}.REST()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var conns [2]net.Conn
	for i := range conns {
		if conns[i], err = conf.Dial(t.Context(), "tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	const rules = "table inet lossy { chain input { type filter hook input priority 0; policy drop; }; }"
	nettest.Run(t, "", "nft", rules)
	if _, err := conns[0].Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Minute)
	for i, c := range conns {
		if err := c.SetReadDeadline(end); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || time.Now().After(end) {
			t.Errorf("connection %d ends after %v: %v", i, time.Since(end.Add(-time.Minute)), err)
		}
	}
}

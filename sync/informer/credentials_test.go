package informer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

var forms = map[string]apitest.Form{
	"token in the kubeconfig":       {},
	"token in a file":               {Files: true},
	"certificate in the kubeconfig": {Certificate: true},
	"certificate in a file":         {Certificate: true, Files: true},
}

// secure is how real servers are.
var secure = apitest.Options{TLS: true, Authenticate: true}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWrongCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, secure)
			dir := t.TempDir()
			path := kubeconfig(t, s, dir, form)
			client, err := Connect(Config{Kubeconfig: path})
			must(t, err)
			if _, err = client.Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("with the right credentials: %v", err)
			}
			if got := s.Requests(apitest.Nodes)[0].Proto; got != "HTTP/2.0" {
				t.Errorf("protocol is %s", got)
			}
			must(t, s.RotateClient())
			if _, err = client.Nodes().List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
				t.Errorf("with those of before: %v", err)
			}
			kubeconfig(t, s, dir, form)
			if _, err = client.Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("with new ones: %v", err)
			}
		})
	}
}

// The files are replaced before the server refuses the old credentials: there is no error.
func TestCredentialsAreReplacedInTime(t *testing.T) {
	t.Parallel()
	for name, form := range forms {
		for _, newCA := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, new authority %v", name, newCA), func(t *testing.T) {
				t.Parallel()
				s := standardServer(t, secure)
				dir := t.TempDir()
				w := followBy(t, s, dir, form)
				w.want(whole...)
				w.watching()

				must(t, s.RotateClient())
				must(t, s.RotateServer(newCA))
				kubeconfig(t, s, dir, form)
				s.Disconnect()
				s.Set(slice("web", "10.180.2.1"))
				w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
				w.watching()
				w.unsuspected()
				w.calm()
			})
		}
	}
}

// The server refuses the old credentials for a while, until the files are replaced.
func TestCredentialsAreReplacedLate(t *testing.T) {
	t.Parallel()
	for name, form := range forms {
		for what, rotate := range map[string]func(*apitest.Server) error{
			"client":    (*apitest.Server).RotateClient,
			"authority": func(s *apitest.Server) error { return s.RotateServer(true) },
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				s := standardServer(t, secure)
				s.Set(service("gone", "172.30.0.43"))
				dir := t.TempDir()
				w := followBy(t, s, dir, form)
				all := append([]string{"ns1/gone:http at 172.30.0.43:80/tcp:"}, whole...)
				w.want(all...)
				w.watching()

				must(t, rotate(s))
				s.Disconnect()
				w.fails(everything...)
				s.Delete(service("gone", ""))
				s.Set(slice("web", "10.180.2.1"))
				w.is(all...)

				kubeconfig(t, s, dir, form)
				w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
				w.recoversFrom(2, everything...) // the connection ends, and then the credentials are refused
			})
		}
	}
}

// Clients need nothing new for another certificate of the same authority.
func TestServerCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	s := standardServer(t, secure)
	w := followWhole(t, s)
	must(t, s.RotateServer(false))
	s.Disconnect()
	s.Set(slice("web", "10.180.2.1"))
	w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
	w.watching()
	w.unsuspected()
}

// unsuspected checks that no error about credentials was logged. That connections
// break may be noticed.
func (w *world) unsuspected() {
	w.t.Helper()
	if w.logs.count("ERROR", "nauthorized")+w.logs.count("ERROR", "certificate") > 0 {
		w.t.Errorf("errors:\n%s", strings.Join(w.logs.all(), "\n"))
	}
}

// A file that is missing, or half written, is named once the server refuses what was in
// it, and does no harm before.
func TestUnreadableCredentials(t *testing.T) {
	t.Parallel()
	for file, form := range map[string]apitest.Form{"token": {Files: true}, "client.pem": {Files: true, Certificate: true}, "kubeconfig": {}} {
		for name, spoil := range map[string]func(string) error{
			"missing": os.Remove,
			"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		} {
			t.Run(file+" "+name, func(t *testing.T) {
				t.Parallel()
				s := standardServer(t, secure)
				dir := t.TempDir()
				w := followBy(t, s, dir, form)
				w.want(whole...)
				w.watching()
				must(t, spoil(filepath.Join(dir, file)))
				drop := func() {
					s.Bookmark() // without an event, client-go takes the end for a failure
					s.DropWatches()
				}
				drop()
				s.Set(slice("web", "10.180.2.1"))
				w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
				w.watching()

				must(t, s.RotateClient())
				drop()
				w.fails(everything...)
				if got := w.logs.count("ERROR", "401 Unauthorized", "can't be read again"); got != len(everything) {
					t.Errorf("%d lines say why:\n%s", got, strings.Join(w.logs.all(), "\n"))
				}
				kubeconfig(t, s, dir, form)
				w.recovers(everything...)
			})
		}
	}
}

// A refused write is repeated, too, with its body.
func TestEventIsWrittenWithNewCredentials(t *testing.T) {
	t.Parallel()
	s := newServer(t, secure)
	dir := t.TempDir()
	client, err := Connect(Config{Kubeconfig: kubeconfig(t, s, dir, apitest.Form{Files: true})})
	must(t, err)
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "node1.1"},
		Reason:     "Starting", Regarding: corev1.ObjectReference{Kind: "Node", Name: "node1"},
	}
	must(t, client.CreateEvent(t.Context(), event))
	must(t, s.RotateClient())
	kubeconfig(t, s, dir, apitest.Form{Files: true})
	event.Name = "node1.2"
	must(t, client.CreateEvent(t.Context(), event))
	got := s.Events()
	if len(got) != 2 || got[1].Name != "node1.2" || got[1].Reason != "Starting" {
		t.Errorf("events: %v", got)
	}
}

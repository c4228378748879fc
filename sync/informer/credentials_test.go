package informer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// secure is how real servers are.
var secure = apitest.Options{TLS: true, Authenticate: true}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// client-go reads a token again after 50 seconds.
func TestATokenIsReadAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: takes a minute")
	}
	s := newServer(t, secure)
	dir := t.TempDir()
	form := apitest.Form{Files: true}
	client, err := Connect(Config{Kubeconfig: kubeconfig(t, s, dir, form)})
	must(t, err)
	list := func() error {
		_, err := client.Nodes().List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(); err != nil {
		t.Errorf("with the right credentials: %v", err)
	}
	if got := s.Requests(apitest.Nodes)[0].Proto; got != "HTTP/2.0" {
		t.Errorf("protocol is %s", got)
	}
	must(t, s.RotateClient())
	if err := list(); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("with those of before: %v", err)
	}
	kubeconfig(t, s, dir, form)
	await(t, func() bool { return list() == nil })
}

// The files of a certificate are replaced before the server refuses the old one, or later.
func TestCertificatesAreReplaced(t *testing.T) {
	t.Parallel()
	form := apitest.Form{Certificate: true, Files: true}
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			t.Parallel()
			s := standardServer(t, secure)
			s.Set(service("gone", "172.30.0.43"))
			dir := t.TempDir()
			w := followBy(t, s, dir, form)
			all := append([]string{"ns1/gone:http at 172.30.0.43:80/tcp:"}, whole...)
			w.want(all...)
			w.watching()

			must(t, s.RotateClient())
			if !late {
				kubeconfig(t, s, dir, form)
			}
			s.Disconnect()
			if late {
				w.fails(everything...)
			}
			s.Delete(service("gone", ""))
			s.Set(slice("web", "10.180.2.1"))
			if late {
				w.is(all...)
				kubeconfig(t, s, dir, form)
			}
			w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
			w.calm()
		})
	}
}

// Clients need nothing new for another certificate of the same authority.
func TestServerCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	s := standardServer(t, secure)
	w := followWhole(t, s)
	must(t, s.RotateServer())
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

// A token file that is missing, or half written, does no harm at once: what was in it is still used.
func TestUnreadableCredentials(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := standardServer(t, secure)
			dir := t.TempDir()
			w := followBy(t, s, dir, apitest.Form{Files: true})
			w.want(whole...)
			w.watching()
			must(t, spoil(filepath.Join(dir, "token")))
			s.Bookmark() // without an event, client-go takes the end for a failure
			s.DropWatches()
			s.Set(slice("web", "10.180.2.1"))
			w.want("ns1/web:http at 172.30.0.41:80/tcp: 10.180.2.1:8080", whole[1], whole[2])
			w.watching()
		})
	}
}

package informer

import (
	"strings"
	"testing"
	"time"

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
	client, err := Connect(Config{Kubeconfig: kubeconfig(t, s, dir)})
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
	s.RotateToken()
	if err := list(); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("with those of before: %v", err)
	}
	kubeconfig(t, s, dir)
	await(t, func() bool { return list() == nil })
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not happen")
		}
	}
}

package daemon

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The mode is that of a proxy, and not any page.
func TestProxyModeOfAnotherProxy(t *testing.T) {
	answer := "ipvs"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/proxyMode" {
			_, _ = w.Write([]byte(answer))
		}
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	if got, want := describeOwner(t.Context(), address, "taken"), "a proxy with mode ipvs answers at "+address; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	answer = "<html>ipvs"
	if got := describeOwner(t.Context(), address, "taken"); got != "taken" {
		t.Errorf("another page: %q", got)
	}
}

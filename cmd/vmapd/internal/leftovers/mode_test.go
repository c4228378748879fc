package leftovers

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
	if got := Answering(address); got != "a proxy with mode ipvs answers at "+address {
		t.Errorf("got %q", got)
	}
	answer = "<html>ipvs"
	if got := Answering(address); got != "" {
		t.Errorf("another page: %q", got)
	}
}

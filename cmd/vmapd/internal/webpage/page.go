// Package webpage has the page at / of the daemon's socket: what the daemon has programmed, for a browser.
//
//	browser ── GET /         ── page.html, of this package
//	        └─ GET /api/…    ── JSON: the same values as at the daemon's socket
//
// The page is one file with its style and its script in it. Its Content-Security-Policy allows these two by
// their hashes and requests to the same origin, and nothing else. Texts of objects are never markup: the
// script makes nodes of text alone.
//
// It changes nothing, and only root may ask the socket. Where root forwards a local port to it, a page of another
// site must not read it: where a name of another site leads to that port ("DNS rebinding"), the request has that
// name in its Host header, and is refused.
package webpage

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
)

//go:embed page.html
var text string

// maxRequests is the number of requests for JSON that are answered at a time.
const maxRequests = 4

// Handler returns the handler of / and /api/. Its routes are below /api/.
func Handler(routes map[string]socket.Route) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", servePage())
	places := make(chan struct{}, maxRequests)
	for name, route := range routes {
		answer := socket.Answer(route)
		mux.HandleFunc("GET /api/"+name, func(w http.ResponseWriter, r *http.Request) {
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
				answer.ServeHTTP(w, r)
			default:
				http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			w.Header().Set(name, value)
		}
		if !ours(r.Host) {
			http.Error(w, "this page answers by an address and by localhost only", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// ours reports whether a Host header names this port.
func ours(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

func servePage() http.Handler {
	policy := Policy(text)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		_, _ = w.Write([]byte(text)) // an error means that the client left
	})
}

// Policy returns the Content-Security-Policy of a page with one style and one script.
func Policy(text string) string {
	return fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		hashOf(text, "style"), hashOf(text, "script"))
}

// hashOf returns the hash of the content of an element.
func hashOf(text, element string) string {
	_, content, _ := strings.Cut(text, "<"+element+">")
	content, _, _ = strings.Cut(content, "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

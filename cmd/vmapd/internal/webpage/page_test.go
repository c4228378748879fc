package webpage

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
)

func get(h http.Handler, host, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func handler() http.Handler {
	return Handler(map[string]socket.Route{"service": func(_ context.Context, query url.Values) (any, error) {
		if query.Get("name") == "none" {
			return nil, socket.NotFound("there is none")
		}
		return map[string]string{"name": query.Get("name")}, nil
	}})
}

func TestAnswers(t *testing.T) {
	h := handler()
	for _, tt := range []struct {
		host, path string
		status     int
		body       string
	}{
		{"127.0.0.1:10249", "/", http.StatusOK, text},
		{"[::1]:10249", "/", http.StatusOK, text},
		{"localhost:10249", "/", http.StatusOK, text},
		{"Node-1:10249", "/", http.StatusMisdirectedRequest, ""},
		{"evil.example:10249", "/", http.StatusMisdirectedRequest, ""},
		{"evil.example", "/api/service", http.StatusMisdirectedRequest, ""},
		{"localhost", "/api/service?name=%3Cb%3E", http.StatusOK, `{"name":"\u003cb\u003e"}`},
		{"localhost", "/api/service?name=none", http.StatusNotFound, `{"error":"there is none"}` + "\n"},
		{"localhost", "/api/other", http.StatusNotFound, ""},
		{"localhost", "/other", http.StatusNotFound, ""},
	} {
		w := get(h, tt.host, tt.path)
		if w.Code != tt.status || tt.body != "" && w.Body.String() != tt.body {
			t.Errorf("%s of %s: %d %.200q, want %d %.200q", tt.path, tt.host, w.Code, w.Body, tt.status, tt.body)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: a browser may guess the type", tt.path)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/api/service", nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want %d", w.Code, http.StatusMethodNotAllowed)
	}
}

// The hashes of the style and of the script change with the file, and nothing else is allowed.
func TestPolicy(t *testing.T) {
	policy := get(handler(), "localhost", "/").Header().Get("Content-Security-Policy")
	want := regexp.MustCompile(`^default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]{44}'; script-src 'sha256-[A-Za-z0-9+/=]{44}'; ` +
		`connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$`)
	if !want.MatchString(policy) {
		t.Errorf("policy %q, want %v", policy, want)
	}
	// echo -n 'x' | openssl dgst -sha256 -binary | base64
	const x = "sha256-LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE="
	if got := hashOf("<script>x</script>", "script"); got != x {
		t.Errorf("hash %s, want %s", got, x)
	}
}

// Text of objects must never be parsed, and nothing comes from elsewhere.
func TestThePageMakesNoMarkupOfTexts(t *testing.T) {
	for _, word := range []string{
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser", "createContextualFragment",
		"srcdoc", " style=", " onclick=", "http://", "https://", "javascript:", "@import", "url(",
	} {
		page := strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "") // the name of a namespace
		if strings.Contains(page, word) {
			t.Errorf("the page has %q", word)
		}
	}
	if strings.Count(text, "<script") != 1 || strings.Count(text, "<style") != 1 {
		t.Error("the policy is for one script and one style")
	}
}

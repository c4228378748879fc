package ui

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func content(t *testing.T, name string) string {
	t.Helper()
	return testaid.Read(t, filepath.Join("page", name))
}

// daemon returns a client of a daemon that answers about Services.
func daemon(t *testing.T) socket.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vmapd.sock")
	s := socket.NewServer(path, map[string]socket.Route{
		"/v1/service": func(_ context.Context, query url.Values) (any, error) {
			if query.Get("name") == "none" {
				return nil, socket.NotFound("there is none")
			}
			return map[string]string{"name": query.Get("name")}, nil
		},
		"/v1/doctor": func(context.Context, url.Values) (any, error) { return "facts", nil },
	}, slog.New(slog.DiscardHandler))
	testaid.Run(t, func(ctx context.Context) { _ = s.Run(ctx) })
	client := socket.Client{Path: path}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if client.Get(t.Context(), "/v1/doctor", nil, new(string)) == nil {
			break
		}
	}
	return client
}

func TestAnswers(t *testing.T) {
	h := Handler("word", daemon(t))
	for _, tt := range []struct {
		path   string
		status int
		body   string
	}{
		{"/word/", http.StatusOK, content(t, "index.html")},
		{"/word/page.js", http.StatusOK, content(t, "page.js")},
		{"/word/page.css", http.StatusOK, content(t, "page.css")},
		{"/", http.StatusNotFound, ""},
		{"/other/", http.StatusNotFound, ""},
		{"/api/service?name=web", http.StatusNotFound, ""},
		{"/word/api/service?name=%3Cb%3E", http.StatusOK, `{"name":"\u003cb\u003e"}`},
		{"/word/api/service?name=none", http.StatusNotFound, `{"error":"there is none"}`},
		{"/word/api/doctor", http.StatusNotFound, ""}, // it is not the page's
	} {
		w := get(h, tt.path)
		if w.Code != tt.status || tt.body != "" && w.Body.String() != tt.body {
			t.Errorf("%s: %d %.200q, want %d %.200q", tt.path, w.Code, w.Body, tt.status, tt.body)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: a browser may guess the type", tt.path)
		}
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/word/api/service", nil)); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want %d", w.Code, http.StatusMethodNotAllowed)
	}
	none := Handler("word", socket.Client{Path: filepath.Join(t.TempDir(), "nowhere")})
	if w := get(none, "/word/api/status"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "no daemon answers") {
		t.Errorf("without a daemon: %d %s", w.Code, w.Body)
	}
}

// The page is on loopback, its path is in what is printed, and it ends with its context.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, in, daemon(t), 0) }()
	line := make([]byte, 1000)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`^http://127\.0\.0\.1:[0-9]+/[A-Z2-7]{20,}/\n`).FindString(string(line[:n]))
	if address == "" {
		t.Fatalf("printed: %q", line[:n])
	}
	response, err := http.Get(strings.TrimSpace(address)) //nolint:noctx // it is this process
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("status %d", response.StatusCode)
	}
	at, _ := url.Parse(strings.TrimSpace(address))
	port, _ := strconv.ParseUint(at.Port(), 10, 16)
	if err := Serve(ctx, io.Discard, daemon(t), uint16(port)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port that is taken: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Text of objects must never be parsed, and nothing comes from elsewhere.
func TestThePageMakesNoMarkupOfTexts(t *testing.T) {
	html := content(t, "index.html")
	all := html + content(t, "page.css") + strings.ReplaceAll(content(t, "page.js"), "http://www.w3.org/2000/svg", "") // a namespace
	for _, word := range []string{
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser", "createContextualFragment",
		"srcdoc", " style=", " onclick=", "http://", "https://", "javascript:", "@import", "url(",
	} {
		if strings.Contains(all, word) {
			t.Errorf("the page has %q", word)
		}
	}
	if strings.Count(html, "<script") != 1 || strings.Contains(html, "<style") {
		t.Error("the policy allows no script and no style in the page itself")
	}
}

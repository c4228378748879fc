package metricsport

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
)

const warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility " +
	"guarantees and is for debugging purposes only."

// page is what a handler answers.
type page struct {
	Status      int
	ContentType string
	NoSniff     bool
	Body        string
}

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

func ask(h http.Handler, method, path, body string) page {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return page{
		w.Code, w.Header().Get("Content-Type"), w.Header().Get("X-Content-Type-Options") == "nosniff",
		strings.ReplaceAll(w.Body.String(), runtime.Version(), "go1.99"),
	}
}

// metricsPort is all of a port, as it is one hour and five seconds after the start.
func metricsPort() Pages {
	return Pages{
		Metrics: says("figures"), SLIs: says("slis"), ProxyMode: "nftables",
		KubeProxy: struct {
			metav1.TypeMeta `json:",inline"`
			BindAddress     string `json:"bindAddress"`
		}{
			metav1.TypeMeta{Kind: "KubeProxyConfiguration", APIVersion: kubeproxyv1alpha1.SchemeGroupVersion.String()},
			"0.0.0.0",
		},
		Own: map[string]string{"connectionGrace": "30s"},
		Flags: map[string]string{
			"proxy-mode": "nftables", "iptables-sync-period": "30s", "nodeport-addresses": "[primary]",
		},
		Started: time.Now().Add(-time.Hour - 5*time.Second), Version: "v0.2.0",
	}
}

// The bodies of the pages, to the byte. The clock of the bubble says 2000-01-01.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := metricsPort().Handler()
		for _, tt := range []struct {
			path string
			want page
		}{
			{"/healthz", page{200, plainText, true, "ok"}},
			{"/proxyMode", page{200, plainText, true, "nftables"}},
			{"/metrics", page{200, "text/plain; charset=utf-8", false, "figures"}},
			{"/metrics/slis", page{200, "text/plain; charset=utf-8", false, "slis"}},
			{"/configz", page{
				200, "application/json", true,
				`{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration",` +
					`"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","bindAddress":"0.0.0.0"},` +
					`"vmapd.io":{"connectionGrace":"30s"}}`,
			}},
			{"/flagz", page{200, plainText, true, `
vmapd flagz
` + warning + `
iptables-sync-period=30s
nodeport-addresses=[primary]
proxy-mode=nftables
`}},
			{"/statusz", page{200, plainText, true, `
vmapd statusz
` + warning + `

Started: Fri Dec 31 22:59:55 UTC 1999
Up: 1 hr 00 min 05 sec
Go version: go1.99
Binary version: v0.2.0
Paths: /configz /flagz /healthz /metrics /proxyMode /statusz
`}},
			{"/debug/pprof/", page{404, plainText, true, "404 page not found\n"}},
			{"/debug/flags/v", page{404, plainText, true, "404 page not found\n"}},
			{"/", page{404, plainText, true, "404 page not found\n"}},
			{"/api/services", page{404, plainText, true, "404 page not found\n"}},
		} {
			got := ask(h, http.MethodGet, tt.path, "")
			if got.ContentType == "" && got.Status == http.StatusOK {
				got.ContentType = plainText // a handler of others, as a server would guess
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.path, diff)
			}
		}
	})
}

func TestProfiling(t *testing.T) {
	t.Parallel()
	set := -1
	m := metricsPort()
	m.Profiling, m.SetVerbosity = true, func(level int) { set = level }
	h := m.Handler()
	for _, tt := range []struct {
		method, path, body string
		status             int
		text               string
		set                int
	}{
		{"GET", "/debug/pprof/", "", 200, "goroutine?debug=1", -1},
		{"GET", "/debug/pprof", "", 307, "/debug/pprof/", -1},
		{"GET", "/debug/pprof/goroutine?debug=1", "", 200, "goroutine profile: total", -1},
		{"GET", "/debug/pprof/cmdline", "", 200, "metricsport", -1},
		{"POST", "/debug/pprof/symbol", "", 200, "num_symbols: 1", -1},
		{"POST", "/debug/pprof/profile", "", 405, "", -1},
		{"GET", "/statusz", "", 200, "Paths: /configz /debug /flagz /healthz /metrics /proxyMode /statusz\n", -1},
		{"GET", "/debug/flags/v", "", 405, "", -1},
		{"PUT", "/debug/flags/v", "4", 200, "the verbosity is now 4\n", 4},
		{"PUT", "/debug/flags/v", " 6\n", 200, "the verbosity is now 6\n", 6},
		{"PUT", "/debug/flags/v", "much", 400, `the level must be a whole number, not "much"`, 6},
		{"PUT", "/debug/flags/v", "", 400, `the level must be a whole number, not ""`, 6},
		{"PUT", "/debug/flags/v", strings.Repeat("1", 1<<20), 400, "read the level: http: request body too large", 6},
	} {
		got := ask(h, tt.method, tt.path, tt.body)
		if got.Status != tt.status || !strings.Contains(got.Body, tt.text) || set != tt.set {
			t.Errorf("%s %s %.9q: want %d %q and level %d, got %d %q and %d", tt.method, tt.path, tt.body, tt.status, tt.text,
				tt.set, got.Status, got.Body, set)
		}
	}
}

package httpserver

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"
)

// MetricsPort has the pages of the metrics port. A page whose field is nil does not exist.
type MetricsPort struct {
	// Metrics and SLIs answer /metrics and /metrics/slis.
	Metrics, SLIs http.Handler
	// ProxyMode returns the name of the backend, for /proxyMode.
	ProxyMode func() string
	// Config returns the effective configuration for /configz, as versioned objects that
	// can be marshalled to JSON: kube-proxy's, and vmapd's own.
	Config func() (kubeProxy, own any)
	// Flags returns names and values for /flagz, without secrets.
	Flags func() map[string]string
	// Started and Version of the process are for /statusz.
	Started time.Time
	Version string
	// Profiling adds /debug/pprof/ and, with SetVerbosity, /debug/flags/v.
	Profiling bool
	// SetVerbosity changes the verbosity of the log, as the flag -v.
	SetVerbosity func(level int)
}

// Handler returns the port's handler. Its /healthz always answers ok; the health of the node is
// on the other port.
func (m MetricsPort) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range m.routes() {
		mux.Handle(pattern, h)
	}
	return mux
}

// routes returns the handlers by their patterns.
func (m MetricsPort) routes() map[string]http.Handler {
	routes := map[string]http.Handler{
		"GET /healthz": text(func() string { return "ok" }), "/metrics": m.Metrics, "/metrics/slis": m.SLIs,
	}
	maps.DeleteFunc(routes, func(_ string, h http.Handler) bool { return h == nil })
	if m.ProxyMode != nil {
		routes["GET /proxyMode"] = text(m.ProxyMode)
	}
	if m.Config != nil {
		routes["GET /configz"] = http.HandlerFunc(m.configz)
	}
	if m.Flags != nil {
		routes["GET /flagz"] = zpage("flagz", m.flagz)
	}
	if m.Profiling {
		addProfiling(routes)
		if m.SetVerbosity != nil {
			routes["PUT /debug/flags/v"] = verbosity(m.SetVerbosity)
		}
	}
	if m.Version != "" {
		paths := folders(append(slices.Collect(maps.Keys(routes)), "GET /statusz"))
		routes["GET /statusz"] = zpage("statusz", func() string { return m.statusz(time.Now(), paths) })
	}
	return routes
}

// folders returns the first parts of the patterns' paths, sorted, in the form of Kubernetes'
// /statusz.
func folders(patterns []string) []string {
	found := map[string]bool{}
	for _, p := range patterns {
		_, path, _ := strings.Cut(p, "/")
		first, _, _ := strings.Cut(path, "/")
		found["/"+first] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// text answers with a text, without a line's end.
func text(get func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, get()) })
}

func writeText(w http.ResponseWriter, s string) {
	write(w, "text/plain; charset=utf-8", s)
}

func write(w http.ResponseWriter, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, body) // an error means that the client left
}

func (m MetricsPort) configz(w http.ResponseWriter, _ *http.Request) {
	kubeProxy, own := m.Config()
	b, err := json.Marshal(map[string]any{"kubeproxy.config.k8s.io": kubeProxy, "vmapd.io": own})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "application/json", string(b))
}

// zpage is a page for people, as Kubernetes' components have it (KEP-4827, KEP-4828).
func zpage(name string, body func() string) http.Handler {
	const warning = "Warning: This endpoint is not meant to be machine parseable, " +
		"has no formatting compatibility guarantees and is for debugging purposes only.\n"
	return text(func() string { return "\nvmapd " + name + "\n" + warning + body() })
}

func (m MetricsPort) flagz() string {
	var b strings.Builder
	flags := m.Flags()
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(&b, "%s=%s\n", name, flags[name])
	}
	return b.String()
}

func (m MetricsPort) statusz(now time.Time, paths []string) string {
	up := max(0, int64(now.Sub(m.Started)/time.Second)) // a clock may be changed
	return fmt.Sprintf("\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nPaths: %s\n",
		m.Started.UTC().Format(time.UnixDate), up/3600, up/60%60, up%60,
		runtime.Version(), m.Version, strings.Join(paths, " "))
}

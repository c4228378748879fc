package httpserver

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// MetricsPort has the pages of the metrics port. A page whose field is nil does not exist.
type MetricsPort struct {
	// Component is the name in the titles of /flagz and /statusz.
	Component string
	// Metrics and SLIs answer /metrics and /metrics/slis.
	Metrics, SLIs http.Handler
	// ProxyMode returns the name of the backend, for /proxyMode.
	ProxyMode func() string
	// Config returns the effective configuration for /configz, as versioned objects that
	// can be marshalled to JSON: kube-proxy's, and vmapd's own.
	Config func() (kubeProxy, own any)
	// Flags returns names and values for /flagz, without secrets.
	Flags func() map[string]string
	// Status returns the contents of /statusz.
	Status func() Status
	// Profiling adds /debug/pprof/ and, with SetVerbosity, /debug/flags/v.
	Profiling bool
	// SetVerbosity changes the verbosity of the log, as the flag -v.
	SetVerbosity func(level int)
}

// Keys of the two parts of /configz. The first is kube-proxy's.
const (
	configKeyKubeProxy = "kubeproxy.config.k8s.io"
	configKeyOwn       = "vmapd.io"
)

// Handler returns the port's handler. Its /healthz always answers ok; the health of the node is
// on the other port.
func (m MetricsPort) Handler() http.Handler {
	routes := map[string]http.Handler{"GET /healthz": text(func() string { return "ok" })}
	add := func(pattern string, h http.Handler) {
		if h != nil {
			routes[pattern] = h
		}
	}
	add("/metrics", m.Metrics)
	add("/metrics/slis", m.SLIs)
	if m.ProxyMode != nil {
		add("GET /proxyMode", text(m.ProxyMode))
	}
	if m.Config != nil {
		add("GET /configz", http.HandlerFunc(m.configz))
	}
	if m.Flags != nil {
		add("GET /flagz", http.HandlerFunc(m.flagz))
	}
	if m.Profiling {
		addProfiling(add)
		if m.SetVerbosity != nil {
			add("PUT /debug/flags/v", verbosity(m.SetVerbosity))
		}
	}
	if m.Status != nil {
		paths := folders(append(slices.Collect(maps.Keys(routes)), "GET /statusz"))
		add("GET /statusz", m.statusz(paths))
	}
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.Handle(pattern, h)
	}
	return mux
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

func writeJSON(w http.ResponseWriter, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "application/json", string(b))
}

func write(w http.ResponseWriter, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, body) // an error means that the client left
}

func (m MetricsPort) configz(w http.ResponseWriter, _ *http.Request) {
	kubeProxy, own := m.Config()
	writeJSON(w, map[string]any{configKeyKubeProxy: kubeProxy, configKeyOwn: own})
}

// HealthPort has the pages of the health port. A page whose field is nil does not exist.
type HealthPort struct {
	// Healthz tells load balancers whether to send new connections to this node (KEP-3836).
	// Livez tells the kubelet whether to restart the process, and Readyz whether all Services
	// have been programmed once.
	Healthz, Livez, Readyz http.Handler
}

// Handler returns the port's handler.
func (h HealthPort) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, handler := range map[string]http.Handler{"/healthz": h.Healthz, "/livez": h.Livez, "/readyz": h.Readyz} {
		if handler != nil {
			mux.Handle(path, handler)
		}
	}
	return mux
}

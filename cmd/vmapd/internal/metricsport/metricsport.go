// Package metricsport has the pages of the metrics port, with kube-proxy's paths and formats, so that the same tools
// work. The contents come as values, functions and handlers.
package metricsport

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmapd/vmapd/sync/httpserver"
)

// Pages are those of the metrics port.
type Pages struct {
	Metrics, SLIs http.Handler // answer /metrics and /metrics/slis
	ProxyMode     string       // the name of the backend
	// KubeProxy and Own are the effective configuration for /configz, as versioned objects that can be marshalled to
	// JSON: kube-proxy's, and vmapd's own.
	KubeProxy, Own any
	Flags          map[string]string // for /flagz, without secrets
	Started        time.Time         // of the process, for /statusz
	Version        string
	// Profiling adds /debug/pprof/ and /debug/flags/v, where SetVerbosity changes the verbosity of the log.
	Profiling    bool
	SetVerbosity func(level int)
}

// Handler returns the port's handler. Its /healthz always answers ok; the health of the node is on the other port.
func (p Pages) Handler() http.Handler {
	routes := map[string]http.Handler{
		"/metrics": p.Metrics, "/metrics/slis": p.SLIs,
		"GET /healthz":   text(func() string { return "ok" }),
		"GET /proxyMode": text(func() string { return p.ProxyMode }),
		"GET /configz":   http.HandlerFunc(p.configz),
		"GET /flagz":     zpage("flagz", p.flagz),
		"GET /statusz":   zpage("statusz", p.statusz),
	}
	if p.Profiling {
		routes["/debug/pprof/"] = httpserver.Slow(http.DefaultServeMux) // with the pages of package pprof
		routes["POST /debug/pprof/symbol"] = http.HandlerFunc(pprof.Symbol)
		routes["PUT /debug/flags/v"] = verbosity(p.SetVerbosity)
	}
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.Handle(pattern, h)
	}
	return mux
}

const plainText = "text/plain; charset=utf-8"

// text answers with a text, without a line's end.
func text(get func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, plainText, get()) })
}

func write(w http.ResponseWriter, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, body) // an error means that the client left
}

func (p Pages) configz(w http.ResponseWriter, _ *http.Request) {
	b, _ := json.Marshal(map[string]any{"kubeproxy.config.k8s.io": p.KubeProxy, "vmapd.io": p.Own}) // of known types
	write(w, "application/json", string(b))
}

// zpage is a page for people, as Kubernetes' components have it (KEP-4827, KEP-4828).
func zpage(name string, body func() string) http.Handler {
	const warning = "Warning: This endpoint is not meant to be machine parseable, " +
		"has no formatting compatibility guarantees and is for debugging purposes only.\n"
	return text(func() string { return "\nvmapd " + name + "\n" + warning + body() })
}

func (p Pages) flagz() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.Flags)) {
		fmt.Fprintf(&b, "%s=%s\n", name, p.Flags[name])
	}
	return b.String()
}

func (p Pages) statusz() string {
	up := max(0, int64(time.Since(p.Started)/time.Second)) // a clock may be changed
	debug := ""
	if p.Profiling {
		debug = " /debug"
	}
	return fmt.Sprintf("\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\n"+
		"Paths: /configz%s /flagz /healthz /metrics /proxyMode /statusz\n",
		p.Started.UTC().Format(time.UnixDate), up/3600, up/60%60, up%60, runtime.Version(), p.Version, debug)
}

// verbosity sets the level in the request's body.
func verbosity(set func(level int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const longest = 20 // bytes
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longest))
		if err != nil {
			http.Error(w, "read the level: "+err.Error(), http.StatusBadRequest)
			return
		}
		level, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 32)
		if err != nil {
			http.Error(w, fmt.Sprintf("the level must be a whole number, not %q", body), http.StatusBadRequest)
			return
		}
		set(int(level))
		write(w, plainText, fmt.Sprintf("the verbosity is now %d\n", level))
	})
}

package httpserver

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"
)

const (
	// maxProfiles limits the CPU time that profiling takes.
	maxProfiles    = 2
	profileTimeout = 10 * time.Minute
)

// addProfiling adds the handlers that net/http/pprof adds to http.DefaultServeMux.
func addProfiling(routes map[string]http.Handler) {
	slots := make(chan struct{}, maxProfiles)
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /debug/pprof/":        pprof.Index,
		"GET /debug/pprof/cmdline": pprof.Cmdline,
		"GET /debug/pprof/profile": pprof.Profile,
		"GET /debug/pprof/symbol":  pprof.Symbol,
		"POST /debug/pprof/symbol": pprof.Symbol,
		"GET /debug/pprof/trace":   pprof.Trace,
	} {
		routes[pattern] = profile(slots, h)
	}
}

// profile limits concurrent requests, and extends their deadline.
func profile(slots chan struct{}, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			text := fmt.Sprintf("%d profiles are already running; try again later", maxProfiles)
			http.Error(w, text, http.StatusTooManyRequests)
			return
		}
		setDeadline(w, time.Now().Add(profileTimeout))
		h.ServeHTTP(w, r)
	})
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

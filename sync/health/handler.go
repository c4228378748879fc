package health

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Handler serves /healthz and /livez as kube-proxy does, and /readyz, see Status. The status
// is 200 or 503, for any method. Other paths are not found. The body of /readyz has the reasons
// for which the proxy is not ready, a line for each.
func (t *Tracker) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]func(Status) answer{"/healthz": healthz, "/livez": livez, "/readyz": t.readyz} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			code := answer(t.Status()).send(w)
			if t.options.Count != nil {
				t.options.Count(path, code)
			}
		})
	}
	return mux
}

// answer is a handler's response.
type answer struct {
	ok          bool
	contentType string
	body        string
}

// send returns the status code.
func (a answer) send(w http.ResponseWriter) int {
	code := http.StatusOK
	if !a.ok {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(a.body)) // fails only if the client is gone
	return code
}

const (
	typeJSON = "application/json"
	typeText = "text/plain; charset=utf-8"
)

func healthz(s Status) answer {
	ok := s.Healthy && s.Eligible
	return answer{ok, typeJSON, fmt.Sprintf(`{%s, "nodeEligible": %v}`, times(s, ok), s.Eligible)}
}

func livez(s Status) answer {
	return answer{s.Healthy, typeJSON, "{" + times(s, s.Healthy) + "}"}
}

// times returns the times of the last successful sync and of now. For a healthy proxy, both
// are now: clients expect a recent sync, as when syncs were periodic.
func times(s Status, ok bool) string {
	updated := s.synced()
	if ok {
		updated = s.At
	}
	return fmt.Sprintf(`"lastUpdated": %q,"currentTime": %q`,
		updated.UTC().Format(time.RFC3339Nano), s.At.UTC().Format(time.RFC3339Nano))
}

// readyz hides errors: its clients are not authenticated, and errors name Services.
func (t *Tracker) readyz(s Status) answer {
	if s.Ready {
		return answer{true, typeText, "ok\n"}
	}
	var missing strings.Builder
	for _, f := range model.Families {
		if s.Families[f].Synced.IsZero() {
			fmt.Fprintf(&missing, "%v: no sync has succeeded yet\n", f)
		}
	}
	if t.options.Unreadable != nil {
		for _, sentence := range t.options.Unreadable() {
			missing.WriteString(sentence + "\n")
		}
	}
	if s.NoNode != "" {
		fmt.Fprintf(&missing, "the cluster has no Node %q: the name comes from --hostname-override, or is the host's\n",
			s.NoNode)
	}
	if t.options.Findings != nil {
		for _, f := range t.options.Findings() {
			fmt.Fprintf(&missing, "vmapd doctor has a finding: %s\n", f)
		}
	}
	return answer{false, typeText, missing.String()}
}

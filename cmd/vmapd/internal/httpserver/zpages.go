package httpserver

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// The pages /flagz (KEP-4828) and /statusz (KEP-4827), for people as text, for programs as
// JSON.

const zpageWarning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n"

// zpageGroup is the API group of the structured pages. All its versions have the same
// fields.
const zpageGroup = "config.k8s.io"

var zpageVersions = []string{"v1beta1", "v1alpha1"} // the first is the default

// zpage has the common fields of the structured pages.
type zpage struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

// negotiate returns the version of the structured page that a client wants, or "" for text:
// the first supported one in the Accept header. Kubernetes requires
// application/json;v=v1beta1;g=config.k8s.io;as=KIND; here, application/json is enough.
func negotiate(accept, kind string) (version string, ok bool) {
	if strings.TrimSpace(accept) == "" {
		return "", true
	}
	for clause := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(clause)
		if err != nil || params["q"] == "0" {
			continue
		}
		switch media {
		case "text/plain", "text/*", "*/*":
			return "", true
		case "application/json", "application/*":
			version := zpageVersions[0]
			if v, ok := params["v"]; ok {
				version = v
			}
			if slices.Contains(zpageVersions, version) && isOr(params, "g", zpageGroup) && isOr(params, "as", kind) {
				return version, true
			}
		}
	}
	return "", false
}

// isOr reports whether a parameter has a value, or is missing.
func isOr(params map[string]string, name, want string) bool {
	v, ok := params[name]
	return !ok || v == want
}

// zpageHandler serves a page as text or, with the common fields added by structured, as JSON.
func zpageHandler(kind string, text func() string, structured func(zpage) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version, ok := negotiate(r.Header.Get("Accept"), kind)
		switch {
		case !ok:
			http.Error(w, fmt.Sprintf("supported: text/plain, application/json;v=%s;g=%s;as=%s",
				strings.Join(zpageVersions, "|"), zpageGroup, kind), http.StatusNotAcceptable)
		case version != "":
			p := zpage{Kind: kind, APIVersion: zpageGroup + "/" + version}
			p.Metadata.Name = "vmapd"
			writeJSON(w, structured(p))
		default:
			writeText(w, fmt.Sprintf("\nvmapd %s\n%s%s", strings.ToLower(kind), zpageWarning, text()))
		}
	})
}

func (m MetricsPort) flagz() http.Handler {
	return zpageHandler("Flagz", func() string {
		var b strings.Builder
		flags := m.Flags()
		for _, name := range slices.Sorted(maps.Keys(flags)) {
			fmt.Fprintf(&b, "%s=%s\n", name, flags[name])
		}
		return b.String()
	}, func(p zpage) any {
		return struct {
			zpage
			Flags map[string]string `json:"flags,omitempty"`
		}{p, m.Flags()}
	})
}

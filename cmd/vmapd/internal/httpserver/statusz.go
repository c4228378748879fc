package httpserver

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"
)

// Status is the status of the process, for /statusz.
type Status struct {
	Started time.Time
	Version string // of this program
	Backend string // for example "nftables"
	Why     string // the reason for choosing the backend
	Node    string // the Node's name
	Ready   bool   // all Services have been programmed once
	Syncs   []Sync
}

// Sync is the result of the last syncs of one IP family.
type Sync struct {
	Family string    // "IPv4" or "IPv6"
	Last   time.Time // of the last successful sync; zero if there was none
	Err    error     // of the last sync
}

// structuredStatus is Statusz of config.k8s.io, with vmapd's own fields under a key of its own.
type structuredStatus struct {
	zpage
	StartTime     string    `json:"startTime"`
	UptimeSeconds int64     `json:"uptimeSeconds"`
	GoVersion     string    `json:"goVersion"`
	BinaryVersion string    `json:"binaryVersion"`
	Paths         []string  `json:"paths"`
	Own           ownStatus `json:"vmapd.io"`
}

type ownStatus struct {
	Backend string           `json:"backend"`
	Why     string           `json:"why"`
	Node    string           `json:"node"`
	Ready   bool             `json:"ready"`
	Syncs   []structuredSync `json:"syncs"`
}

type structuredSync struct {
	Family   string  `json:"family"`
	LastSync *string `json:"lastSync"` // null if there was none
	Error    string  `json:"error,omitempty"`
}

func (m MetricsPort) statusz(paths []string) http.Handler {
	const kind = "Statusz"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version, ok := negotiate(r.Header.Get("Accept"), kind)
		now := time.Now()
		switch {
		case !ok:
			notAcceptable(w, kind)
		case version != "":
			page := m.Status().structured(now, paths)
			page.zpage = newZpage(kind, version, m.Component)
			writeJSON(w, page)
		default:
			writeText(w, fmt.Sprintf("\n%s statusz\n%s\n%s", m.Component, zpageWarning, m.Status().text(now, paths)))
		}
	})
}

func (s Status) structured(now time.Time, paths []string) structuredStatus {
	syncs := []structuredSync{}
	for _, sync := range s.Syncs {
		one := structuredSync{Family: sync.Family}
		if !sync.Last.IsZero() {
			last := sync.Last.UTC().Format(time.RFC3339)
			one.LastSync = &last
		}
		if sync.Err != nil {
			one.Error = sync.Err.Error()
		}
		syncs = append(syncs, one)
	}
	return structuredStatus{
		StartTime: s.Started.UTC().Format(time.RFC3339), UptimeSeconds: seconds(now.Sub(s.Started)),
		GoVersion: runtime.Version(), BinaryVersion: s.Version, Paths: paths,
		Own: ownStatus{Backend: s.Backend, Why: s.Why, Node: s.Node, Ready: s.Ready, Syncs: syncs},
	}
}

func (s Status) text(now time.Time, paths []string) string {
	var b strings.Builder
	line := func(name, value string) {
		// Joined errors have several lines.
		fmt.Fprintf(&b, "%s: %s\n", name, strings.ReplaceAll(value, "\n", "; "))
	}
	line("Started", s.Started.UTC().Format(time.UnixDate))
	line("Up", hours(now.Sub(s.Started)))
	line("Go version", runtime.Version())
	line("Binary version", s.Version)
	line("Paths", strings.Join(paths, " "))
	line("Backend", s.Backend)
	line("Why", s.Why)
	line("Node", s.Node)
	line("Ready", fmt.Sprint(s.Ready))
	for _, sync := range s.Syncs {
		last := "never"
		if !sync.Last.IsZero() {
			last = fmt.Sprintf("%s (%s ago)", sync.Last.UTC().Format(time.UnixDate), hours(now.Sub(sync.Last)))
		}
		line("Last sync "+sync.Family, last)
		if sync.Err != nil {
			line("Error "+sync.Family, sync.Err.Error())
		}
	}
	return b.String()
}

// hours formats a duration as Kubernetes' page does.
func hours(d time.Duration) string {
	s := seconds(d)
	return fmt.Sprintf("%d hr %02d min %02d sec", s/3600, s/60%60, s%60)
}

// seconds returns no negative number, which a changed clock could cause.
func seconds(d time.Duration) int64 { return max(0, int64(d/time.Second)) }

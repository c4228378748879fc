package httpserver

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status is the status of the process, for /statusz.
type Status struct {
	Started time.Time `json:"-"`
	Version string    `json:"-"`       // of this program
	Backend string    `json:"backend"` // for example "nftables"
	Why     string    `json:"why"`     // the reason for choosing the backend
	Node    string    `json:"node"`    // the Node's name
	// NotEligible is the reason for which load balancers must not use the node; "": they may.
	NotEligible string `json:"notEligible,omitempty"`
	Ready       bool   `json:"ready"` // all Services have been programmed once, and the cluster has the Node
	Syncs       []Sync `json:"syncs"`
	// OtherProxies are the signs of another proxy that is active on the node.
	OtherProxies []string `json:"otherProxies,omitempty"`
	// Leftovers of other proxies or backends; "" if there are none.
	Leftovers string `json:"leftovers,omitempty"`
	// FastPath says whether connections take the fast path; "": it is off.
	FastPath string `json:"fastPath,omitempty"`
	// Findings are the lines of vmapd doctor that are not ok, such as "warn firewall: …".
	Findings []string `json:"findings,omitempty"`
	// Problems are whole sentences: the proxy works with old or incomplete information.
	Problems []string `json:"problems,omitempty"`
}

// Sync is the result of the last syncs of one IP family.
type Sync struct {
	Family string      `json:"family"`          // "IPv4" or "IPv6"
	Last   metav1.Time `json:"lastSync"`        // of the last successful sync; zero if there was none
	Err    string      `json:"error,omitempty"` // of the last sync, if it failed
}

// structuredStatus is Statusz of config.k8s.io, with vmapd's own fields under a key of its own.
type structuredStatus struct {
	zpage
	StartTime     string   `json:"startTime"`
	UptimeSeconds int64    `json:"uptimeSeconds"`
	GoVersion     string   `json:"goVersion"`
	BinaryVersion string   `json:"binaryVersion"`
	Paths         []string `json:"paths"`
	Own           Status   `json:"vmapd.io"`
}

func (m MetricsPort) statusz(paths []string) http.Handler {
	return zpageHandler("Statusz",
		func() string { return "\n" + m.Status().text(time.Now(), paths) },
		func(p zpage) any { return m.Status().structured(p, time.Now(), paths) })
}

func (s Status) structured(page zpage, now time.Time, paths []string) structuredStatus {
	return structuredStatus{
		zpage: page, StartTime: s.Started.UTC().Format(time.RFC3339), UptimeSeconds: seconds(now.Sub(s.Started)),
		GoVersion: runtime.Version(), BinaryVersion: s.Version, Paths: paths, Own: s,
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
	if s.NotEligible != "" {
		line("Not eligible", s.NotEligible)
	}
	line("Ready", fmt.Sprint(s.Ready))
	for _, sign := range s.OtherProxies {
		line("Other proxy", sign)
	}
	if s.Leftovers != "" {
		line("Leftovers", s.Leftovers)
	}
	if s.FastPath != "" {
		line("Fast path", s.FastPath)
	}
	for _, sync := range s.Syncs {
		last := "never"
		if !sync.Last.IsZero() {
			last = fmt.Sprintf("%s (%s ago)", sync.Last.UTC().Format(time.UnixDate), hours(now.Sub(sync.Last.Time)))
		}
		line("Last sync "+sync.Family, last)
		if sync.Err != "" {
			line("Error "+sync.Family, sync.Err)
		}
	}
	for _, f := range s.Findings {
		line("Doctor", f)
	}
	for _, p := range s.Problems {
		line("Problem", p)
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

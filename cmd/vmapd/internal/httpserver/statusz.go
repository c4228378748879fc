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
}

// structuredStatus is Statusz of config.k8s.io.
type structuredStatus struct {
	zpage
	StartTime     string   `json:"startTime"`
	UptimeSeconds int64    `json:"uptimeSeconds"`
	GoVersion     string   `json:"goVersion"`
	BinaryVersion string   `json:"binaryVersion"`
	Paths         []string `json:"paths"`
}

func (m MetricsPort) statusz(paths []string) http.Handler {
	return zpageHandler("Statusz",
		func() string { return "\n" + m.Status().text(time.Now(), paths) },
		func(p zpage) any { return m.Status().structured(p, time.Now(), paths) })
}

func (s Status) structured(page zpage, now time.Time, paths []string) structuredStatus {
	return structuredStatus{
		zpage: page, StartTime: s.Started.UTC().Format(time.RFC3339), UptimeSeconds: seconds(now.Sub(s.Started)),
		GoVersion: runtime.Version(), BinaryVersion: s.Version, Paths: paths,
	}
}

func (s Status) text(now time.Time, paths []string) string {
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%s: %s\n", name, value) }
	line("Started", s.Started.UTC().Format(time.UnixDate))
	line("Up", hours(now.Sub(s.Started)))
	line("Go version", runtime.Version())
	line("Binary version", s.Version)
	line("Paths", strings.Join(paths, " "))
	return b.String()
}

// hours formats a duration as Kubernetes' page does.
func hours(d time.Duration) string {
	s := seconds(d)
	return fmt.Sprintf("%d hr %02d min %02d sec", s/3600, s/60%60, s%60)
}

// seconds returns no negative number, which a changed clock could cause.
func seconds(d time.Duration) int64 { return max(0, int64(d/time.Second)) }

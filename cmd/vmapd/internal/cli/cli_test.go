package cli

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/trace"
)

// Who interrupts a command knows that it ended early.
func TestAnInterruptedCommandPrintsNoError(t *testing.T) {
	root := &cobra.Command{Use: "vmapd", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(&cobra.Command{Use: "wait", RunE: func(c *cobra.Command, _ []string) error {
		return fmt.Errorf("wait for packets: %w", c.Context().Err())
	}})
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var stdout, stderr bytes.Buffer
	if code := execute(ctx, root, []string{"wait"}, nil, &stdout, &stderr); code != 130 || stdout.Len()+stderr.Len() > 0 {
		t.Errorf("exit code %d, want 130; %s%s", code, &stdout, &stderr)
	}
}

// A library's lines are of the daemon's log, with its format, and at the verbosity of debugging.
func TestWhatLibrariesLogIsInTheFormatOfTheLog(t *testing.T) {
	for verbosity, want := range map[string]string{"-v=2": "", "-v=4": `"level":"DEBUG","msg":"an unknown attribute"}`} {
		var stderr bytes.Buffer
		args := []string{"--logging-format=json", verbosity, "--write-config-to", filepath.Join(t.TempDir(), "config")}
		code := execute(t.Context(), Command(), args, nil, &bytes.Buffer{}, &stderr)
		before := stderr.Len()
		log.Print("an unknown attribute")
		if got := stderr.String()[before:]; code != 0 || !strings.HasSuffix(strings.TrimSpace(got), want) || want == "" && got != "" {
			t.Errorf("%s: exit code %d, got %q", verbosity, code, got)
		}
	}
}

// The exit code of trace --each is that of a faulty endpoint, wherever it stands among the others.
func TestAFaultyEndpointDecides(t *testing.T) {
	ends := []netip.AddrPort{
		netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("10.0.0.3:80"), netip.MustParseAddrPort("10.0.0.4:80"),
	}
	for _, faulty := range ends {
		stories := map[netip.AddrPort]trace.Story{}
		var all []explain.Endpoint
		for _, at := range ends {
			all = append(all, explain.Endpoint{Address: at})
			stories[at] = trace.Story{Verdict: trace.Forwarded, Answer: trace.Answer{Kind: trace.Accepted}, Endpoint: at}
		}
		stories[faulty] = trace.Story{Verdict: trace.Forwarded, Answer: trace.Answer{Kind: trace.NoAnswer}, Endpoint: faulty}
		var out bytes.Buffer
		worst, err := writeEach(&out, report.InText, stories, all)
		if err != nil || worst.Endpoint != faulty || !strings.HasPrefix(out.String(), "=> 1 of 3 endpoints faulty: "+faulty.String()) {
			t.Errorf("%v: the story of %v, %v:\n%s", faulty, worst.Endpoint, err, &out)
		}
	}
}

// As a plugin, trace lets the pod connect that is the client, until the trace in vmapd's pod has ended.
func TestThePodConnectsForATrace(t *testing.T) {
	dir := t.TempDir()
	const script = `#!/bin/sh
case "$*" in
"get pods -n kube-system"*) echo '{"items": [{"metadata": {"name": "vmapd-a", "namespace": "kube-system"},
	"spec": {"nodeName": "a", "containers": [{"name": "vmapd"}]}, "status": {"phase": "Running"}}]}';;
"get pod web-1 -n shop"*) echo '{"spec": {"nodeName": "a"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}}';;
"get endpointslices"*) echo '{}';;
"config view"*) echo shop;;
*"vmapd explain --output=json --namespace=shop --from=10.0.0.1 svc/frontend:80") echo '{"destination": "10.96.0.7:80/tcp"}';;
*"vmapd attached trace --from=10.0.0.1"*) while ! [ -e "$0.connected" ]; do sleep 0.05; done; echo traced;;
"exec -n shop web-1 -- sh -c echo | nc -w 3 10.96.0.7 80") touch "$0.connected"; exit 1;;
*) echo "unexpected: $*" >&2; exit 1;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := execute(ctx, asPlugin(), []string{"trace", "--from", "pod/web-1", "svc/frontend:80"}, nil, &stdout, &stderr)
	if code != 0 || stdout.String() != "traced\n" {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
}

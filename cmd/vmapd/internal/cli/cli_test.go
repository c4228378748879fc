package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/spf13/cobra"

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

// The exit code of trace --each is that of a faulty endpoint, wherever it stands among the others.
func TestAFaultyEndpointDecides(t *testing.T) {
	ends := []netip.AddrPort{
		netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("10.0.0.3:80"), netip.MustParseAddrPort("10.0.0.4:80"),
	}
	for _, faulty := range ends {
		stories := map[netip.AddrPort]trace.Story{}
		for _, at := range ends {
			stories[at] = trace.Story{Verdict: trace.Forwarded, Answer: trace.Answer{Kind: trace.Accepted}, Endpoint: at}
		}
		stories[faulty] = trace.Story{Verdict: trace.Forwarded, Answer: trace.Answer{Kind: trace.NoAnswer}, Endpoint: faulty}
		var out bytes.Buffer
		worst, err := writeEach(&out, report.InText, stories, nil)
		if err != nil || worst.Endpoint != faulty || !strings.HasPrefix(out.String(), "=> 1 of 3 endpoints faulty: "+faulty.String()) {
			t.Errorf("%v: the story of %v, %v:\n%s", faulty, worst.Endpoint, err, &out)
		}
	}
}

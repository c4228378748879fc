package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/trace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

const traceLong = `Trace tells what the kernel of this node does with a new connection, hook by hook:
which rules match, also those of other programs, and where the packet ends. It says
if that differs from vmapd's decision (see explain), for which it asks the daemon, or
takes manifests (-f) or a cluster (--live).

It waits for the next connection of a client. With --from node, or with --connect, it
makes a connection itself.

  vmapd trace --from 203.0.113.7 192.168.98.10:80/tcp
  vmapd trace --from pod/web-1 svc/frontend:http
  vmapd trace --from node 10.96.0.10:53/udp

Meanwhile, a table of nftables marks the first packet of the connection, and the
answer. The kernel removes it when the command ends, even if it is killed; before
Linux 5.12, it then ceases to match at the end of --timeout, and the next trace or
the daemon's next start removes it. It needs root.

Exit codes: 0 if a connection was traced, 2 if its end is not the expected one
(--expect), and 1 after an error. Refused is also a connection that its endpoint
refuses, and dropped one of TCP without an answer, or whose answer is lost.`

// tracing is the subcommand that traces a connection.
type tracing struct {
	explainer
	connect bool
	count   int
	timeout time.Duration
	wait    time.Duration

	filter others.Filter
}

func newTraceCommand() *cobra.Command {
	var x tracing
	c := &cobra.Command{
		Use:   "trace [--from CLIENT] DESTINATION[:PORT[/PROTOCOL]]",
		Short: "Tell what the kernel does with a connection",
		Long:  traceLong,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			x.To = args[0]
			return x.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	x.set = f
	x.addFlags(f, "name of this Node, with -f and --live (default: the only Node in the manifests, or the host's name)")
	x.addEnds(f)
	f.Lookup("from").Usage += " (default: any)"
	f.BoolVar(&x.connect, "connect", false, "make a connection from this node, so that there is something to trace (default with --from node)")
	f.IntVar(&x.count, "count", 1, "end after so many connections")
	f.DurationVar(&x.timeout, "timeout", 30*time.Second, "end if no connection has come by then")
	f.DurationVar(&x.wait, "wait", 3*time.Second, "time to wait for an answer after a packet was forwarded")
	return c
}

// mostTraced bounds the connections that are traced.
const mostTraced = 1000

func (x *tracing) check() (want explain.Expectation, err error) {
	if want, err = x.checkEnds(); err != nil {
		return want, err
	}
	switch {
	case x.count < 1 || x.count > mostTraced:
		return want, fmt.Errorf("--count: %d is not between 1 and %d", x.count, mostTraced)
	case x.timeout < time.Second || x.timeout > time.Hour:
		return want, fmt.Errorf("--timeout: %v is not between 1s and 1h", x.timeout)
	case x.wait < 0 || x.wait > time.Minute:
		return want, fmt.Errorf("--wait: %v is not between 0s and 1m", x.wait)
	}
	return want, nil
}

// aim finds the addresses of both ends. Names are those of the daemon, the manifests or the cluster.
func (x *tracing) aim(ctx context.Context, stderr io.Writer) error {
	x.connect = x.connect || x.From == "node"
	to, err := parseTraced(x.To)
	if err != nil {
		return err
	}
	from := names.Ref{Kind: names.Process}
	if x.From != "" {
		if from, err = names.ParseSource(x.From); err != nil {
			return fmt.Errorf("--from: %w", err)
		}
	}
	isAny := from.Kind == names.Process
	if to.Kind != names.Address || !isAny && from.Kind != names.Address {
		q := *x
		if q.From == "" {
			q.From = "node"
		}
		e, err := q.explanation(ctx, stderr)
		if err != nil {
			return err
		}
		if to, err = parseTraced(e.Destination.String()); err == nil && !isAny {
			from, err = names.ParseSource(e.Client.Address)
		}
		if err != nil {
			return err
		}
	}
	port, _ := strconv.ParseUint(to.Port, 10, 16) // checked; 0 if it is not given
	protocol, err := model.ParseProtocol(strings.ToUpper(to.Protocol))
	if err != nil {
		return err
	}
	x.filter = others.Filter{
		Source: from.Addr, Dest: netip.AddrPortFrom(to.Addr, uint16(port)), Protocol: protocol,
		Lifetime: x.timeout + x.wait + time.Second, Count: x.count,
	}
	if from.Addr.IsValid() && from.Addr.Is4() != to.Addr.Is4() {
		return fmt.Errorf("--from: %v and %v are of different IP families", from.Addr, to.Addr)
	}
	if x.connect && port == 0 {
		return fmt.Errorf("to make a connection, a port is needed: %s:PORT", x.To)
	}
	if x.connect {
		const further = 16 // may connect to the same destination while vmapd does
		x.filter.Count += further
	}
	return nil
}

// parseTraced reads a destination. An address without a port is for all ports of TCP.
func parseTraced(s string) (names.Ref, error) {
	if a, err := names.ParseSource(strings.Trim(s, "[]")); err == nil && a.Kind == names.Address {
		return a, nil
	}
	return names.ParseDestination(s)
}

func (x *tracing) run(ctx context.Context, stdout, stderr io.Writer) error {
	want, err := x.check()
	if err != nil {
		return err
	}
	if err := x.aim(ctx, stderr); err != nil {
		return err
	}
	w, err := newWatching(x)
	if err != nil {
		return err
	}
	defer w.close()
	if !x.connect {
		from := ""
		if x.From != "" {
			from = " from " + x.From
		}
		fmt.Fprintf(stderr, "waiting for a new connection%s to %s, for %v\n", from, x.To, x.timeout)
	}
	unexpected := false
	told, err := w.watch(ctx, func(s trace.Story) error {
		if otherwise := want.DiffersFrom(s.Outcome(), s.Conclusion, []explain.Endpoint{{Address: s.Endpoint.String(), Pod: s.Pod}}); otherwise != "" {
			fmt.Fprintln(stderr, "vmapd: "+model.OneLine(otherwise))
			unexpected = true
		}
		return writeOutput(stdout, x.output, &s, s.WriteText)
	}, stderr)
	switch {
	case err == nil && told == 0:
		return fmt.Errorf("no new connection to %s has come to this node within %v", x.To, x.timeout)
	case err == nil && unexpected:
		return exitError(explain.ExitUnexpected)
	}
	return err
}

// expected asks for vmapd's decision about a client's connection that came in by an interface, or by none. A connection
// can be told without it.
func (x *tracing) expected(ctx context.Context, client netip.Addr, in string, dest netip.AddrPort, stderr io.Writer) *trace.Expected {
	q := *x
	q.explainRequest = explainRequest{From: client.String(), To: fmt.Sprintf("%v/%v", dest, x.filter.Protocol), Interface: in}
	e, err := q.explanation(ctx, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "no comparison with vmapd's decision: %v\n", err)
		return nil
	}
	expected := &trace.Expected{Verdict: e.Verdict, Conclusion: e.Conclusion, Pods: map[string]string{}}
	if e.Endpoints != nil {
		for _, u := range e.Endpoints.Used {
			expected.Endpoints = append(expected.Endpoints, u.Address)
			expected.Pods[u.Address] = u.Pod
		}
	}
	return expected
}

var errNotTraced = errors.New("no rule of the kernel's has seen the connection that vmapd made")

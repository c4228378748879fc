package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/trace"
	"github.com/vmapd/vmapd/model"
)

const traceLong = `Trace makes a connection, and shows what happens to it on this node: what vmapd decides,
what the kernel does, hook by hook, with the rules of other programs that match, what
the endpoint answers, and the verdict. If there is no answer, the failures that vmapd
doctor finds on this node follow.

  vmapd trace frontend:80                            (from this node)
  vmapd trace --from pod/web-1 shop/frontend:http    (from the pod)
  vmapd trace --from 203.0.113.7 192.168.98.10:80    (waits for that client)
  vmapd trace --from any 192.168.98.10               (any client, any port)
` + destinations + `
It connects from the network of the client, if that is this node, or a pod whose network
namespace is visible here. Otherwise it waits for the client's next connection. vmapd's
decision comes from the daemon, or from manifests (-f) or a cluster (--kubeconfig).

Meanwhile, a table of nftables marks the first packet of the connection, and the
answer. The kernel removes it when the command ends, even if it is killed; before
Linux 5.12, it then ceases to match at the end of --timeout, and the next trace or
the daemon's next start removes it. It needs root, or CAP_NET_ADMIN.

Exit codes: 0 if a connection was traced, 2 if its end is not the expected one
(--expect), and 1 after an error. Rejected is also a connection that its endpoint
refuses, and dropped one of TCP without an answer, or whose answer is lost.`

// tracing is the subcommand that traces a connection.
type tracing struct {
	connection
	trace.Watch
}

func newTraceCommand() *cobra.Command {
	var x tracing
	c := &cobra.Command{
		Use:   "trace [--from CLIENT] DESTINATION",
		Short: "Show what the kernel does with a connection",
		Long:  traceLong,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			x.To = args[0]
			return x.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	x.addFlags(f)
	f.Lookup("from").Usage += `; "any" waits for any client (default: node)`
	f.IntVar(&x.Count, "count", 1, "end after so many connections")
	f.DurationVar(&x.Timeout, "timeout", 30*time.Second, "end if no connection has come by then")
	f.DurationVar(&x.Wait, "wait", 3*time.Second, "time to wait for an answer after a packet was forwarded")
	return c
}

// mostTraced bounds the connections that are traced.
const mostTraced = 1000

func (x *tracing) check() (want explain.Expectation, err error) {
	if want, err = x.connection.check(); err != nil {
		return want, err
	}
	switch {
	case x.Count < 1 || x.Count > mostTraced:
		return want, fmt.Errorf("--count: %d is not between 1 and %d", x.Count, mostTraced)
	case x.Timeout < time.Second || x.Timeout > time.Hour:
		return want, fmt.Errorf("--timeout: %v is not between 1s and 1h", x.Timeout)
	case x.Wait < 0 || x.Wait > time.Minute:
		return want, fmt.Errorf("--wait: %v is not between 0s and 1m", x.Wait)
	case !doctor.HasNetAdmin():
		return want, errNeedsRoot
	}
	return want, nil
}

var errNeedsRoot = errors.New("root or CAP_NET_ADMIN is needed")

// aim finds the addresses of both ends. Names are those of the daemon, the manifests or the cluster.
func (x *tracing) aim(ctx context.Context, stderr io.Writer) error {
	to, err := parseTraced(x.To)
	if err != nil {
		return err
	}
	if x.asked.From == "" {
		x.asked.From = "node"
	}
	from := names.Ref{Kind: names.Process}
	if x.asked.From != "any" {
		if from, err = names.ParseSource(x.asked.From); err != nil {
			return fmt.Errorf("--from: %w", err)
		}
	}
	if to.Kind != names.Address || from.Kind != names.Process && from.Kind != names.Address {
		q := *x
		if x.asked.From == "any" {
			q.asked.From = "node"
		}
		e, err := q.explanation(ctx, stderr)
		if err != nil {
			return err
		}
		if to, err = parseTraced(e.Dest); err == nil && from.Kind != names.Process {
			from, err = names.ParseSource(e.Client)
		}
		if err != nil {
			return err
		}
	}
	if isOwnAddress(from.Addr) {
		from = names.Ref{Kind: names.Process}
	}
	port, _ := strconv.ParseUint(to.Port, 10, 16) // checked; 0 if it is not given
	x.Filter.Source, x.Filter.Dest = from.Addr, netip.AddrPortFrom(to.Addr, uint16(port))
	if x.Filter.Protocol, err = model.ParseProtocol(strings.ToUpper(to.Protocol)); err != nil {
		return err
	}
	if from.Addr.IsValid() && from.Addr.Is4() != to.Addr.Is4() {
		return fmt.Errorf("--from: %v and %v are of different IP families", from.Addr, to.Addr)
	}
	x.Connect = from.Kind == names.Process && x.asked.From != "any"
	if from.Addr.IsValid() && port != 0 {
		f, err := trace.FindNamespace(from.Addr)
		x.Connect, x.Watch.From = err == nil, f
	}
	if x.Connect && port == 0 {
		return fmt.Errorf("to make a connection, a port is needed: %s:PORT", x.To)
	}
	return nil
}

// isOwnAddress reports whether an interface here has an address.
func isOwnAddress(a netip.Addr) bool {
	own, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(own, func(n net.Addr) bool {
		p, err := netip.ParsePrefix(n.String())
		return err == nil && p.Addr().Unmap() == a
	})
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
	if err == nil {
		err = x.aim(ctx, stderr)
	}
	if err != nil {
		return err
	}
	if x.Watch.From != nil {
		defer func() { _ = x.Watch.From.Close() }()
	}
	x.Expect = func(ctx context.Context, client netip.Addr, in string, dest netip.AddrPort) *trace.Expected {
		return x.expected(ctx, client, in, dest, stderr)
	}
	unexpected := false
	x.Tell = func(s trace.Story) error {
		if !x.Connect && isTerminal(stderr) {
			fmt.Fprintln(stderr) // behind the time that is left
		}
		endpoints := []explain.Endpoint{{Address: s.Endpoint.String(), Pod: s.Pod}}
		if otherwise := want.Differs(s.Outcome(), s.Conclusion, endpoints); otherwise != "" {
			fmt.Fprintln(stderr, "vmapd: "+model.OneLine(otherwise))
			unexpected = true
		}
		return x.write(ctx, stdout, s)
	}
	x.Left = countdown(stderr, fmt.Sprintf("waiting for a new connection from %s to %s", x.asked.From, x.To))
	told, err := x.Run(ctx)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return nil // by the person who waits
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w", errNeedsRoot, err)
	case err == nil && told == 0:
		return fmt.Errorf("no new connection to %s has come to this node within %v", x.To, x.Timeout)
	case err == nil && unexpected:
		return exitError(explain.ExitUnexpected)
	}
	return err
}

// countdown returns a function that prints the time that is left: once or, on a terminal, each time.
func countdown(stderr io.Writer, waiting string) func(time.Duration) {
	said := false
	return func(left time.Duration) {
		switch {
		case isTerminal(stderr):
			fmt.Fprintf(stderr, "\r%s: %3.0f s ", waiting, left.Seconds())
		case !said:
			fmt.Fprintf(stderr, "%s, for %v\n", waiting, left.Round(time.Second))
		}
		said = true
	}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if ok {
		_, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
		ok = err == nil
	}
	return ok
}

// write writes a story and, if the connection was not answered, the failures that doctor finds on this node.
func (x *tracing) write(ctx context.Context, stdout io.Writer, s trace.Story) error {
	out := struct {
		trace.Story
		Doctor []report.Line `json:"doctor,omitempty"`
	}{Story: s}
	if !s.Answered() {
		for _, l := range examineQuickly(ctx, x.socket).Lines {
			if l.Level == report.Fail && (l.Name != "daemon" || x.kubeconfig == "" && len(x.paths) == 0) {
				out.Doctor = append(out.Doctor, l)
			}
		}
	}
	return report.Print(stdout, x.output, out, func(t *report.Text) {
		s.Write(t)
		if len(out.Doctor) > 0 {
			t.Say("")
			t.Say("vmapd doctor on this node:")
			t.Lines(out.Doctor)
		}
	})
}

// expected asks for vmapd's decision about a client's connection that came in by an interface, or by none. A connection
// can be told without it.
func (x *tracing) expected(ctx context.Context, client netip.Addr, in string, dest netip.AddrPort, stderr io.Writer) *trace.Expected {
	q := x.connection
	q.asked = asked{From: client.String(), To: fmt.Sprintf("%v/%v", dest, x.Filter.Protocol), Interface: in}
	e, err := q.explanation(ctx, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "vmapd's decision is not known: %v\n", err)
		return nil
	}
	expected := &trace.Expected{Verdict: e.Verdict, Conclusion: e.Conclusion, Pods: map[string]string{}}
	for _, u := range e.Used {
		expected.Endpoints = append(expected.Endpoints, u.Address)
		expected.Pods[u.Address] = u.Pod
	}
	return expected
}

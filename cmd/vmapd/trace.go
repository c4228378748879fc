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

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/trace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/tracer"
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
the daemon's next start removes it. It needs root.`

// tracing is the subcommand that traces a connection.
type tracing struct {
	explainer
	connect bool
	count   int
	timeout time.Duration
	wait    time.Duration

	filter tracer.Filter
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
	f.StringVar(&x.From, "from", "", `client: an address, a name such as pod/NAME, or "node" for a process of this node (default: any)`)
	f.BoolVar(&x.connect, "connect", false, "make a connection from this node, so that there is something to trace (default with --from node)")
	f.IntVar(&x.count, "count", 1, "end after so many connections")
	f.DurationVar(&x.timeout, "timeout", 30*time.Second, "end if no connection has come by then")
	f.DurationVar(&x.wait, "wait", 3*time.Second, "time to wait for an answer after a packet was forwarded")
	f.StringArrayVarP(&x.paths, "filename", "f", nil, "file or folder of manifests, to compare with vmapd's decision (repeatable)")
	f.BoolVar(&x.live, "live", false, "read the objects of a cluster, to compare with vmapd's decision")
	f.StringVar(&x.kubeconfig, "kubeconfig", "", "with --live: file with the address and credentials of the cluster (default: those of the pod)")
	f.StringVar(&x.master, "master", "", "with --live: address of the API server; overrides the kubeconfig's")
	f.StringVar(&x.socket, "socket", socket.DefaultPath, "socket of the daemon on this node, which is asked without -f and --live")
	f.StringVarP(&x.Namespace, "namespace", "n", "", "namespace of names without one (default: the only one that has the name)")
	f.StringVarP(&x.output, "output", "o", "text", "text, json or yaml")
	return c
}

// mostTraced bounds the connections that are traced.
const mostTraced = 1000

func (x *tracing) check() error {
	switch {
	case x.output != "text" && x.output != "json" && x.output != "yaml":
		return fmt.Errorf("--output: %q is none of text, json and yaml", x.output)
	case x.count < 1 || x.count > mostTraced:
		return fmt.Errorf("--count: %d is not between 1 and %d", x.count, mostTraced)
	case x.timeout < time.Second || x.timeout > time.Hour:
		return fmt.Errorf("--timeout: %v is not between 1s and 1h", x.timeout)
	case x.wait < 0 || x.wait > time.Minute:
		return fmt.Errorf("--wait: %v is not between 0s and 1m", x.wait)
	case x.live && len(x.paths) > 0:
		return errors.New("give either --filename, for manifests, or --live, for a cluster")
	}
	return nil
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
	x.filter = tracer.Filter{
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
		const others = 16 // may connect to the same destination while vmapd does
		x.filter.Count += others
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
	if err := x.check(); err != nil {
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
	told, err := w.watch(ctx, func(s trace.Story) error {
		return writeOutput(stdout, x.output, &s, s.WriteText)
	}, stderr)
	if err == nil && told == 0 {
		return fmt.Errorf("no new connection to %s has come to this node within %v", x.To, x.timeout)
	}
	return err
}

// expected asks for vmapd's decision. A connection can be told without it.
func (x *tracing) expected(ctx context.Context, client netip.Addr, dest netip.AddrPort, stderr io.Writer) *trace.Expected {
	q := *x
	q.From, q.To, q.Namespace = client.String(), fmt.Sprintf("%v/%v", dest, x.filter.Protocol), ""
	e, err := q.explanation(ctx, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "no comparison with vmapd's decision: %v\n", err)
		return nil
	}
	expected := &trace.Expected{Verdict: e.Verdict, Conclusion: e.Conclusion}
	if e.Endpoints != nil {
		for _, u := range e.Endpoints.Used {
			expected.Endpoints = append(expected.Endpoints, u.Address)
		}
	}
	return expected
}

var errNotTraced = errors.New("no rule of the kernel's has seen the connection that vmapd made")

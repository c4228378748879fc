package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/trace"
	"github.com/vmapd/vmapd/model"
)

type tracing struct {
	connection
	trace.Watch
	each bool
}

func newTraceCommand() *cobra.Command {
	var x tracing
	c := &cobra.Command{
		Use:   "trace [--from CLIENT] DESTINATION",
		Short: "Show what the kernel does with a connection",
		Long:  docs.Help("trace", "Ends of a connection"),
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			x.to = args[0]
			return x.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	x.addFlags(f)
	f.Lookup("from").Usage += `; "any" waits for any client (default: node)`
	f.DurationVar(&x.Timeout, "timeout", 30*time.Second, "time to wait for a connection")
	f.BoolVarP(&x.All, "verbose", "v", false, "show all rules of vmapd's that match, too")
	f.BoolVar(&x.each, "each", false, "connect until each endpoint of the Service was chosen, and name the faulty ones")
	f.DurationVar(&x.Wait, "wait", 3*time.Second, "time to wait for an answer after a packet was forwarded")
	return c
}

func (x *tracing) check() (want explain.Expectation, err error) {
	if want, err = x.connection.check(); err != nil {
		return want, err
	}
	switch {
	case x.Timeout <= 0 || x.Wait <= 0:
		return want, errors.New("--timeout and --wait must be positive")
	case !doctor.HasNetAdmin():
		return want, errors.New("root or CAP_NET_ADMIN is needed")
	}
	return want, nil
}

// aim finds the addresses of both ends. Names are those of the daemon, the manifests or the cluster.
func (x *tracing) aim(ctx context.Context, stderr io.Writer) error {
	client := cmp.Or(x.from, "node")
	if x.Connect = client != "any"; !x.Connect {
		client = "node"
	}
	q, err := x.query.Between(client, x.to)
	if err == nil && q.HasNames() {
		var e explain.Explanation
		if e, err = x.explanation(ctx, q, stderr); err != nil {
			return err
		}
		if q.From.Kind != names.Process {
			client = e.Client
		}
		q, err = x.query.Between(client, e.Dest)
	}
	if err != nil {
		return err
	}
	a, err := new(names.Directory).Resolve(q)
	x.Filter.Source, x.Filter.Dest, x.Filter.Protocol = netip.AddrPortFrom(a.Source, 0), a.Dest, a.Protocol
	return err
}

func (x *tracing) run(ctx context.Context, stdout, stderr io.Writer) error {
	want, err := x.check()
	if err == nil && !x.hasObjects() {
		err = socket.Client{Path: x.socket}.Elsewhere(ctx)
	}
	if err == nil {
		err = x.aim(ctx, stderr)
	}
	if err != nil {
		return err
	}
	x.All = x.All || x.output == report.JSON || x.output == report.YAML // which fold nothing
	x.Expect = func(ctx context.Context, client netip.Addr, in string, dest netip.AddrPort) *explain.Explanation {
		return x.expected(ctx, client, in, dest, stderr)
	}
	x.Unseen = func() { x.suggest(ctx, stderr) }
	waiting := fmt.Sprintf("waiting for a new connection from %s to %s", cmp.Or(x.from, "node"), x.to)
	if x.Filter.Protocol == model.SCTP {
		waiting = "SCTP needs a client of its own: " + waiting
	}
	x.Waits = func() { fmt.Fprintf(stderr, "%s, for %v\n", waiting, x.Timeout) }
	var s trace.Story
	if x.each {
		s, err = x.runEach(ctx, stdout)
	} else {
		s, err = x.Run(ctx)
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return exitError(exitInterrupted) // by the person who waits
	case err == nil && !x.each:
		err = x.write(ctx, stdout, s)
	}
	endpoints := []explain.Endpoint{{Address: s.Endpoint, Pod: s.Pod}}
	return cmp.Or(err, want.Check(s.Outcome(), s.Conclusion, endpoints))
}

// exitInterrupted is the exit code after SIGINT, as shells have it.
const exitInterrupted = 130

// suggest says why vmapd does not connect from a pod, and with which command the pod does.
func (x *tracing) suggest(ctx context.Context, stderr io.Writer) {
	e := x.expected(ctx, x.Filter.Source.Addr(), "", x.Filter.Dest, io.Discard)
	if e == nil || e.Pod == "" {
		return // another machine's connections are waited for
	}
	namespace, pod, _ := strings.Cut(e.Pod, "/")
	nc := "sh -c '" + netcat(e.Dest) + "'"
	const text = "can't connect from pod %s: that needs CAP_SYS_ADMIN and, in a container, hostPID. Let it connect:\n" +
		"  kubectl debug -n %s %s --image=busybox -- %s"
	report.Complain(stderr, fmt.Sprintf(text, e.Pod, namespace, pod, nc))
}

// netcat connects to ADDRESS:PORT/PROTOCOL, and sends a line: without, UDP has no packet.
func netcat(to string) string {
	d, _ := names.ParseDestination(to) // an explanation's
	return fmt.Sprintf("echo | nc%s -w 3 %v %s", map[bool]string{true: " -u"}[d.Protocol == "udp"], d.Addr, d.Port)
}

// runEach connects until all endpoints of the Service have been chosen, and prints how each of them ended. It returns
// the story of a faulty one, if there is one.
func (x *tracing) runEach(ctx context.Context, stdout io.Writer) (s trace.Story, err error) {
	const perEndpoint = 20 // connections, on the average: the choice is random
	stories := map[netip.AddrPort]trace.Story{}
	var all []explain.Endpoint
	isLeft := func(u explain.Endpoint) bool { return stories[u.Address].Conclusion == "" }
	for tries := 1; tries > 0 && (len(stories) == 0 || slices.ContainsFunc(all, isLeft)); tries-- {
		if s, err = x.Run(ctx); err != nil {
			return s, err
		}
		if len(stories) == 0 {
			if all = s.Endpoints; len(all) == 0 {
				return s, x.write(ctx, stdout, s)
			}
			tries += perEndpoint * len(all)
		}
		if !slices.ContainsFunc(all, func(u explain.Endpoint) bool { return u.Address == s.Endpoint }) {
			all = append(all, explain.Endpoint{Address: s.Endpoint})
		}
		for _, at := range s.Silent {
			one := s
			one.Endpoint, one.Answer = at, trace.Answer{Kind: trace.NoAnswer}
			one.Conclusion = fmt.Sprintf("forwarded to %v, which did not answer in time: the kernel chose again.", at)
			stories[at] = one
		}
		if before, ok := stories[s.Endpoint]; !ok || before.Answered() {
			stories[s.Endpoint] = s // the first failure stays
		}
	}
	return writeEach(stdout, x.output, stories, all)
}

// writeEach prints a line for each endpoint, and returns the story of a faulty one, if there is one.
func writeEach(
	stdout io.Writer, format report.Format, stories map[netip.AddrPort]trace.Story, endpoints []explain.Endpoint,
) (worst trace.Story, err error) {
	var table report.Table
	var faulty []string
	var all []trace.Story
	for _, u := range endpoints {
		name, level := strings.TrimSpace(u.Address.String()+" "+u.Pod), report.OK
		s, ok := stories[u.Address]
		if !ok {
			table.Notes = append(table.Notes, name+" was never chosen")
			continue
		}
		if s.Pod = u.Pod; !s.Answered() {
			level, faulty = report.Fail, append(faulty, name)
		}
		if !s.Answered() || len(faulty) == 0 {
			worst = s
		}
		all = append(all, s)
		table.Rows = append(table.Rows, report.Row{Level: level, Cells: []string{u.Address.String(), s.Conclusion}})
	}
	return worst, report.Print(stdout, format, all, func(t *report.Text) {
		if total := report.Plural(len(all), "endpoint"); len(faulty) > 0 {
			t.Verdict(report.Fail, "%d of %s faulty: %s", len(faulty), total, report.List(faulty, 0))
		} else {
			t.Verdict(report.OK, "all of %s answered", total)
		}
		t.Say("")
		t.Table(table)
	})
}

// write writes a story and, if the connection was not answered, the failures that doctor finds on this node.
func (x *tracing) write(ctx context.Context, stdout io.Writer, s trace.Story) error {
	out := struct {
		trace.Story
		Doctor []report.Line `json:"doctor,omitempty"`
	}{Story: s}
	if !s.Answered() {
		r, err := askReport(ctx, x.socket)
		if err != nil {
			r = examine(doctor.Facts{NoDaemon: err})
		}
		for _, l := range r.Lines {
			if l.Level == report.Fail && (l.Name != "daemon" || !x.hasObjects()) {
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
// can be shown without it.
func (x *tracing) expected(
	ctx context.Context, client netip.Addr, in string, dest netip.AddrPort, stderr io.Writer,
) *explain.Explanation {
	q, err := names.Query{Interface: in}.Between(client.String(), fmt.Sprintf("%v/%v", dest, x.Filter.Protocol))
	var e explain.Explanation
	if err == nil {
		e, err = x.explanation(ctx, q, stderr)
	}
	if err != nil {
		report.Complain(stderr, fmt.Sprintf("the expected result is unknown: %v", err))
		return nil
	}
	return &e
}

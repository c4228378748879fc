package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
)

// answer is a daemon's answer: as a table, or as JSON.
type answer interface {
	Table(wide bool, now time.Time) status.Table
}

// question is a subcommand that asks the running daemon.
type question struct {
	route  string
	answer func() answer // a new one, to be filled in

	socket    string
	output    string
	namespace string
	watch     bool
}

// watchInterval is the time between two questions of --watch.
const watchInterval = time.Second

const askLong = `

It asks the daemon on this node, by its unix socket, which only root may do. In the
daemon's container: kubectl exec -n kube-system ds/vmapd -- vmapd `

// newStatusCommands returns the subcommands that ask the running daemon for its state.
func newStatusCommands() []*cobra.Command {
	overview := &question{route: "/v1/status", answer: func() answer { return new(status.Overview) }}
	services := &question{route: "/v1/services", answer: func() answer { return new(status.Services) }}
	endpoints := &question{route: "/v1/endpoints", answer: func() answer { return new(status.Endpoints) }}
	connections := &question{route: "/v1/connections", answer: func() answer { return new(status.Connections) }}
	return []*cobra.Command{
		overview.command("status", "Show the state of the running daemon", `Status shows the state of the running daemon: the backend, the last syncs, the number of
service ports by what happens to their connections, and problems.`),
		services.about("services", "Show the Services that the running daemon has programmed", `Services shows each service port that the running daemon serves, with the time since when the
kernel has it as it is, and Services that are left out with the reason. Of one Service, it
shows all problems.`),
		endpoints.about("endpoints", "Show the endpoints that the running daemon has programmed", `Endpoints shows the endpoints of each service port; of one Service, each endpoint with its
share of new connections.`),
		connections.about("connections", "Show the numbers of connections to Services", `Connections shows, for each service port, the number of new connections since counting began
(with --service-counters of the daemon), and the number of entries in connection tracking:
open connections, and those that ended a short while ago. Of one Service, it shows the
entries of each endpoint.`),
	}
}

func (q *question) command(use, short, long string) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{
		Use: use, Short: short, Long: long + askLong + name, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			query, err := q.query(args)
			if err != nil {
				return err
			}
			return q.run(cmd.Context(), query, cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&q.socket, "socket", socket.DefaultPath, "the daemon's unix socket")
	f.StringVarP(&q.output, "output", "o", "", "wide, json or yaml")
	f.BoolVarP(&q.watch, "watch", "w", false, "go on, and print changes")
	return c
}

// about returns a command with a Service as its argument.
func (q *question) about(name, short, long string) *cobra.Command {
	c := q.command(name+" [NAMESPACE/NAME]", short, long)
	c.Args = cobra.MaximumNArgs(1)
	f := c.Flags()
	f.StringVarP(&q.namespace, "namespace", "n", "", "only this namespace (default: all)")
	f.BoolP("all-namespaces", "A", true, "all namespaces")
	return c
}

// query returns the parameters of the request.
func (q *question) query(args []string) (url.Values, error) {
	if !slices.Contains([]string{"", "wide", "json", "yaml"}, q.output) {
		return nil, fmt.Errorf("--output: %q is none of wide, json, yaml", q.output)
	}
	query := url.Values{}
	if q.namespace != "" {
		query.Set("namespace", q.namespace)
	}
	if len(args) == 0 {
		return query, nil
	}
	namespace, name, ok := strings.Cut(args[0], "/")
	switch {
	case !ok && q.namespace == "":
		namespace, name = "default", namespace
	case !ok:
		namespace, name = q.namespace, namespace
	case q.namespace != "" && q.namespace != namespace:
		return nil, fmt.Errorf("--namespace: %s is not in namespace %q", args[0], q.namespace)
	}
	query.Set("namespace", namespace)
	query.Set("name", name)
	return query, nil
}

func (q *question) run(ctx context.Context, query url.Values, w io.Writer) error {
	client := socket.Client{Path: q.socket}
	p := printer{w: w, output: q.output}
	for {
		a := q.answer()
		if err := client.Get(ctx, q.route, query, a); err != nil {
			if ctx.Err() != nil && p.began {
				return nil // the end of --watch
			}
			return err
		}
		if err := p.print(a); err != nil || !q.watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchInterval):
		}
	}
}

// printer prints answers, of further ones only the changes.
type printer struct {
	w      io.Writer
	output string

	began bool
	table status.Table // the last one
	text  string       // the last JSON or YAML
}

func (p *printer) print(a answer) error {
	defer func() { p.began = true }()
	if p.output == "" || p.output == "wide" {
		return p.printTable(a.Table(p.output == "wide", time.Now()))
	}
	var b strings.Builder
	if err := writeOutput(&b, p.output, a, nil); err != nil || b.String() == p.text {
		return err
	}
	if p.began && p.output == "yaml" {
		fmt.Fprintln(p.w, "---")
	}
	p.text = b.String()
	_, err := io.WriteString(p.w, p.text)
	return err
}

func (p *printer) printTable(t status.Table) error {
	whole := t
	if p.began {
		t = t.Changed(p.table)
	}
	p.table = whole
	return t.Write(p.w)
}

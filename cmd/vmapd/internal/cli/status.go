package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
)

// question is a subcommand that asks the running daemon.
type question struct {
	daemon    socket.Client
	format    report.Format
	watch     bool
	namespace string
	all       bool
	rules     bool
}

// answer is a daemon's answer, and the tables that stand for it.
type answer struct {
	value  any
	tables []report.Table
}

// watchInterval is the time between two questions of --watch.
const watchInterval = time.Second

const statusLong = `Status shows the state of the daemon on this node: whether it is ready, its problems, what
doctor has found, the number of service ports by state, and the
last syncs.

With the name of a Service, it describes that: its addresses, its endpoints with their pods,
nodes, zones, shares of new connections and states, its connections and its problems. --rules
adds its rules; "vmapd doctor" says whether the kernel has the same. "vmapd explain" has the
reason why an endpoint is not used.

  vmapd status
  vmapd status shop/web --rules
  kubectl vmapd status                    all nodes`

const servicesLong = `Services shows each service port that the daemon on this node serves, and Services that are
left out with the reason; those that fail come first. AGE is the time since its rules
last changed.

  vmapd services -A
  vmapd services -n shop -w               changes, too`

const asksLong = `

It asks the daemon by its unix socket, which only root may do. In the daemon's container:
kubectl exec -n kube-system ds/vmapd -- vmapd `

func newStatusCommand() *cobra.Command {
	var q question
	c := q.command("status [SERVICE]", "Show the state of the daemon, or of a Service", statusLong+asksLong+"status")
	c.Args = cobra.MaximumNArgs(1)
	c.Flags().BoolVar(&q.rules, "rules", false, "with a Service: show its part of the table of nftables")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			if q.rules {
				return missing("SERVICE: --rules is about one")
			}
			return q.run(cmd.Context(), cmd.OutOrStdout(), q.overview)
		}
		ref, err := names.ParseService(args[0])
		if err != nil {
			return err
		}
		if ref.Namespace != "" && q.namespace != "" && ref.Namespace != q.namespace {
			return fmt.Errorf("--namespace: %s is not in namespace %q", args[0], q.namespace)
		}
		query := url.Values{
			"namespace": {cmp.Or(ref.Namespace, q.namespace)}, "name": {ref.Name}, "tracked": {""},
		}
		if q.rules {
			query.Set("rules", "")
		}
		return q.run(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context, again bool) (answer, error) {
			return q.service(ctx, query, again)
		})
	}
	return c
}

func newServicesCommand() *cobra.Command {
	var q question
	c := q.command("services", "Show the Services that the daemon serves", servicesLong+asksLong+"services")
	c.Args = cobra.NoArgs
	c.Flags().BoolVarP(&q.all, "all-namespaces", "A", false, "show the Services of all namespaces")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return q.run(cmd.Context(), cmd.OutOrStdout(), q.services)
	}
	return c
}

func (q *question) command(use, short, long string) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long}
	f := c.Flags()
	f.StringVar(&q.daemon.Path, "socket", socket.DefaultPath, "the daemon's unix socket")
	f.StringVarP(&q.namespace, "namespace", "n", "", "the `namespace` of Services (default \"default\")")
	f.BoolVarP(&q.watch, "watch", "w", false, "watch for changes")
	report.AddFormat(f, &q.format)
	return c
}

func (q *question) overview(ctx context.Context, _ bool) (answer, error) {
	var o status.Overview
	err := q.daemon.Get(ctx, "/v1/status", nil, &o)
	return answer{&o, o.Tables(time.Now())}, err
}

func (q *question) services(ctx context.Context, _ bool) (answer, error) {
	query := url.Values{}
	if !q.all {
		query.Set("namespace", cmp.Or(q.namespace, "default"))
	}
	var s status.Services
	err := q.daemon.Get(ctx, "/v1/services", query, &s)
	tables := s.Tables(q.all, q.format == report.Wide, time.Now())
	if len(s.Items) == 0 && !q.all {
		none := fmt.Sprintf("no Services in namespace %q; -A shows those of all namespaces", query.Get("namespace"))
		tables[0].Notes = []string{none}
	}
	return answer{&s, tables}, err
}

// service asks about one Service. One that is deleted while it is watched is an answer without ports.
func (q *question) service(ctx context.Context, query url.Values, again bool) (answer, error) {
	var one status.One
	err := q.daemon.Get(ctx, "/v1/service", query, &one)
	if refused, ok := errors.AsType[*socket.Error](err); ok && again && refused.Status == http.StatusNotFound {
		one, err = status.One{Namespace: query.Get("namespace"), Name: query.Get("name")}, nil
	}
	return answer{&one, one.Tables(time.Now())}, err
}

// run prints the answer to a question and, with --watch, what changes.
func (q *question) run(
	ctx context.Context, w io.Writer, ask func(ctx context.Context, again bool) (answer, error),
) error {
	if q.watch && q.format != report.InText && q.format != report.Wide {
		return errors.New("--watch: only with -o text or wide")
	}
	p := report.Watcher{W: w, Format: q.format}
	for again := false; ; again = true {
		a, err := ask(ctx, again)
		switch {
		case err != nil && again && ctx.Err() != nil:
			return nil //nolint:nilerr // the end of --watch
		case err != nil:
			return err
		}
		if err := p.Print(a.value, a.tables); err != nil || !q.watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchInterval):
		}
	}
}

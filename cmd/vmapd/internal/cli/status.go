package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/ui"
)

type question struct {
	daemon    socket.Client
	format    report.Format
	watch     bool
	namespace string
	all       bool
	rules     bool
}

const watchInterval = time.Second

func newStatusCommand() *cobra.Command {
	var q question
	c := q.command("status [SERVICE]", "Show the state of the daemon, or of a Service", docs.Help("status"))
	c.Args = cobra.MaximumNArgs(1)
	c.Flags().BoolVar(&q.rules, "rules", false, "with a Service: show its part of the table of nftables")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			if q.rules {
				return missing("SERVICE: --rules is about one")
			}
			return ask(&q, cmd, "/v1/status", nil, (*status.Overview).Tables)
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
		return ask(&q, cmd, "/v1/service", query, (*status.One).Tables)
	}
	return c
}

func newServicesCommand() *cobra.Command {
	var q question
	c := q.command("services", "Show the Services that the daemon serves", docs.Help("services"))
	c.Args = cobra.NoArgs
	c.Flags().BoolVarP(&q.all, "all-namespaces", "A", false, "show the Services of all namespaces")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		query, none := url.Values{}, ""
		if !q.all {
			query.Set("namespace", cmp.Or(q.namespace, "default"))
			none = fmt.Sprintf("no Services in namespace %q; -A shows those of all namespaces", query.Get("namespace"))
		}
		return ask(&q, cmd, "/v1/services", query, func(s *status.Services, now time.Time) []report.Table {
			s.Namespaces, s.Wide, s.None = q.all, q.format == report.Wide, none
			return s.Tables(now)
		})
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

// ask prints the answer to a question and, with --watch, what changes.
func ask[T any](
	q *question, cmd *cobra.Command, path string, query url.Values, tables func(*T, time.Time) []report.Table,
) error {
	if q.watch && q.format != report.InText && q.format != report.Wide {
		return errors.New("--watch: only with -o text or wide")
	}
	ctx, p := cmd.Context(), report.Watcher{W: cmd.OutOrStdout(), Format: q.format}
	now := time.Now() // for all answers: ages alone are no change
	for {
		answer := new(T)
		if err := q.daemon.Get(ctx, path, query, answer); err != nil {
			return err
		}
		if err := p.Print(answer, tables(answer, now)); err != nil || !q.watch {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchInterval):
		}
	}
}

// newUICommand serves a page with the answers of a daemon, which find finds.
func newUICommand(find func(*cobra.Command) (socket.Client, error)) *cobra.Command {
	var port uint16
	c := &cobra.Command{
		Use: "ui", Short: "Serve a page for a browser on this machine", Long: docs.Help("ui"), Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemon, err := find(cmd)
			if err != nil {
				return err
			}
			return ui.Serve(cmd.Context(), cmd.OutOrStdout(), daemon, port)
		},
	}
	c.Flags().Uint16Var(&port, "port", 0, "port of the page; 0 is a free one")
	return c
}

func newOwnUICommand() *cobra.Command {
	var daemon socket.Client
	c := newUICommand(func(*cobra.Command) (socket.Client, error) { return daemon, nil })
	c.Flags().StringVar(&daemon.Path, "socket", socket.DefaultPath, "the daemon's unix socket")
	return c
}

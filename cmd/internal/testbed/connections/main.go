package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// options are the flags.
type options struct {
	vmapd, kubeProxy string
	services         []int
	rounds           int
	turn             time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "connections: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:           "connections",
		Short:         "Compare new connections a second through proxies",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := c.Flags()
	f.StringVar(&o.vmapd, "vmapd", "bin/vmapd", "the program")
	f.StringVar(&o.kubeProxy, "kube-proxy", "", "kube-proxy, in modes nftables and iptables; without it, vmapd alone")
	f.IntSliceVar(&o.services, "services", []int{100, 1_000, 10_000}, "numbers of Services")
	f.IntVar(&o.rounds, "rounds", 25, "rounds of turns")
	f.DurationVar(&o.turn, "turn", 150*time.Millisecond, "time of a turn")
	return c
}

func (o *options) run(ctx context.Context) error {
	if err := lab.Available(); err != nil {
		return err
	}
	proxies := []proxy{{name: "vmapd", program: o.vmapd}}
	if o.kubeProxy != "" {
		for _, mode := range []string{"nftables", "iptables"} {
			proxies = append(proxies, proxy{name: "kube-proxy " + mode, program: o.kubeProxy, mode: mode})
		}
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() { _ = table.Flush() }()
	fmt.Fprintln(table, "Services\tproxy\tdirect/s\tto others\tratio\tto others and itself\tratio\tlost\t")
	for _, services := range o.services {
		for _, p := range proxies {
			r, err := o.measure(ctx, p, services)
			if err != nil {
				return fmt.Errorf("%s with %d Services: %w", p.name, services, err)
			}
			fmt.Fprintf(table, "%d\t%s\t%.0f\t%.0f\t%.2f\t%.0f\t%.2f\t%d\t\n", services, p.name,
				r.rates[direct], r.rates[others], r.rates[others]/r.rates[direct],
				r.rates[all], r.rates[all]/r.rates[direct], r.lost)
			if err := table.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure makes a world with a proxy, and measures it.
func (o *options) measure(ctx context.Context, p proxy, services int) (r result, err error) {
	w, err := newWorld(ctx, services)
	defer func() { err = errors.Join(err, w.close()) }()
	if err != nil {
		return r, err
	}
	if err := w.start(ctx, p); err != nil {
		return r, err
	}
	return w.compare(ctx, o.rounds, o.turn)
}

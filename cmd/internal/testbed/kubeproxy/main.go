package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// options are the flags.
type options struct {
	folder   string // with a folder for each cluster, and for each recording
	clusters []string
	modes    []string
	program  string
	work     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "kubeproxy: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:           "kubeproxy VERSION...",
		Short:         "Record the rules that versions of kube-proxy program",
		Example:       "  kubeproxy 1.36.3 1.37.2",
		Args:          cobra.MinimumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, versions []string) error { return o.run(cmd.Context(), versions) },
	}
	f := c.Flags()
	f.StringVar(&o.folder, "folder", "testdata/kube-proxy", "folder with the clusters, and with the recordings")
	f.StringSliceVar(&o.clusters, "clusters", []string{"differs", "same"}, "names of the clusters")
	f.StringSliceVar(&o.modes, "modes", []string{"iptables", "nftables"}, "modes of kube-proxy")
	f.StringVar(&o.program, "program", "", "kube-proxy of the one version, which is built otherwise")
	f.StringVar(&o.work, "work", filepath.Join(os.TempDir(), "vmapd-kube-proxy"), "folder for the programs that are built")
	return c
}

func (o *options) run(ctx context.Context, versions []string) error {
	if o.program != "" && len(versions) > 1 {
		return errors.New("--program is for one version")
	}
	if err := lab.Available(); err != nil {
		return err
	}
	for _, version := range versions {
		version = strings.TrimPrefix(version, "v")
		program := o.program
		if program == "" {
			var err error
			if program, err = build(ctx, o.work, version); err != nil {
				return fmt.Errorf("build kube-proxy %s: %w", version, err)
			}
		}
		for _, mode := range o.modes {
			for _, cluster := range o.clusters {
				r := recording{program: program, version: version, mode: mode, cluster: filepath.Join(o.folder, cluster)}
				out := filepath.Join(o.folder, version+"-"+mode)
				fmt.Fprintf(os.Stderr, "kube-proxy %s, mode %s, cluster %s\n", version, mode, cluster)
				if err := r.run(ctx, out); err != nil {
					return fmt.Errorf("kube-proxy %s, mode %s, cluster %s: %w", version, mode, cluster, err)
				}
			}
		}
	}
	return nil
}

package cli

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/objects"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
)

// Render is the subcommand that prints the rules.
type Render struct {
	NodeFlags
	IPFamily string // ipv4, ipv6, or "" for both
}

func newRenderCommand() *cobra.Command {
	var r Render
	c := &cobra.Command{
		Use:   "render -f PATH",
		Short: "Print the rules that vmapd would program",
		Long:  docs.Help("render"),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(r.Paths) == 0 {
				return missing("manifests (-f PATH)")
			}
			return r.Run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	r.addFlags(c.Flags(), "name of the Node to render for (default: the only one in the files, or the host)", "backend")
	c.Flags().StringVar(&r.IPFamily, "ip-family", "", "ipv4 or ipv6 (default: both)")
	return c
}

// Run prints the rules of all families that are asked for. What can't be read, and problems, are on stderr.
func (r *Render) Run(stdout, stderr io.Writer) error {
	families, ok := map[string][]model.Family{
		"": model.Families[:], "ipv4": {model.IPv4}, "ipv6": {model.IPv6},
	}[r.IPFamily]
	if !ok {
		return fmt.Errorf("--ip-family: unknown family %q (ipv4, ipv6)", r.IPFamily)
	}
	conf, err := r.Load(stderr)
	if err != nil {
		return err
	}
	read, err := r.load(stderr)
	if err != nil {
		return err
	}
	traffic, d := conf.Model(), objects.Of(read)
	traffic.NodeName, err = config.OnlyNode(traffic.NodeName, d.Nodes)
	if err = cmp.Or(err, d.CheckNode(traffic.NodeName)); err != nil {
		return err
	}
	builder := model.NewBuilder(traffic)
	read.ApplyTo(builder)
	snapshot := builder.Snapshot()
	problems := snapshot.Problems
	for _, p := range problems {
		report.Complain(stderr, read.Located(p))
	}
	for _, f := range families {
		if err := write(stdout, snapshot.Family(f), conf); err != nil {
			return fmt.Errorf("write the rules of %v: %w", f, err)
		}
	}
	if r.incomplete || len(problems) > 0 {
		return exitError(1)
	}
	return nil
}

// write renders one family for the backend. auto means nftables: the kernel is not asked.
func write(w io.Writer, s *model.FamilySnapshot, c *config.Config) error {
	switch c.Backend {
	case config.IPVS:
		_, err := io.WriteString(w, ipvs.Compile(nil, s, c.IPVS()).String())
		return err
	case config.IPTables:
		program := map[model.Family]string{model.IPv4: "iptables-restore", model.IPv6: "ip6tables-restore"}[s.Family]
		_, err := fmt.Fprintf(w, "# %s --noflush\n%v", program, iptables.Compile(nil, s, c.IPTables()))
		return err
	case config.Userspace:
		return userspace.Write(w, s)
	case config.Auto, config.NFTables:
	}
	return c.NFTables().Compile(nil, s).Table().Write(w)
}

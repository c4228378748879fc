package cli

import (
	"context"
	"errors"
	"net/url"
	"os/exec" //nolint:depguard // it only looks for programs
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/others"
)

type examination struct {
	flags  config.Flags
	socket string
	all    bool
	output report.Format
}

func newDoctorCommand() *cobra.Command {
	var x examination
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine this node",
		Long:  docs.Help("doctor"),
		Args:  cobra.NoArgs,
		RunE:  x.run,
	}
	f := c.Flags()
	x.flags.AddSome(f, "config", "vmapd-config", "backend")
	f.StringVar(&x.socket, "socket", socket.DefaultPath, "the daemon's unix socket")
	f.BoolVar(&x.all, "all", false, "list all differences of the kernel's rules from the expected ones, too")
	report.AddFormat(f, &x.output)
	return c
}

const examineTime = 30 * time.Second

func (x *examination) run(cmd *cobra.Command, _ []string) error {
	ctx := cmd.Context()
	conf, err := config.Load(&x.flags)
	if conf != nil && !cmd.Flags().Changed("socket") {
		x.socket = *conf.Own.Socket
	}
	r, asked := askReport(ctx, x.socket)
	if errors.Is(asked, socket.ErrElsewhere) {
		return asked
	}
	if asked != nil {
		facts := doctor.Facts{NoDaemon: asked}
		if errors.Is(asked, socket.ErrNoDaemon) {
			facts.Other = otherDaemon(ctx, x.socket)
		}
		if err != nil {
			facts.ConfigError = err.Error()
		} else {
			facts.Wants = doctor.WantsOf(conf.KubeProxy.Conntrack, conf.Model(), nil)
			examineNode(&facts, conf)
		}
		r = examine(facts)
	}
	if !x.all {
		r.Differences = nil
	}
	if err := report.Print(cmd.OutOrStdout(), x.output, r, r.Write); err != nil {
		return err
	}
	if code := r.ExitCode(); code != 0 {
		return exitError(code)
	}
	return nil
}

// askReport asks the daemon for its report on this node.
func askReport(ctx context.Context, path string) (r doctor.Report, err error) {
	c := socket.Client{Path: path}
	if err = c.Elsewhere(ctx); err == nil {
		// A daemon that hangs does not answer this, either.
		if err = c.Get(ctx, "/v1/services", url.Values{"limit": {"1"}}, new(any)); !errors.Is(err, socket.ErrLate) {
			c.Deadline = examineTime
			err = c.Get(ctx, "/v1/doctor", nil, &r)
		}
	}
	return r, err
}

// examine examines the node without a daemon.
func examine(f doctor.Facts) doctor.Report {
	f.At, f.Version = time.Now(), buildinfo.Current().Version
	f.Examine()
	f.Host.Rules = doctor.ReadRules()
	return doctor.Diagnose(f)
}

// otherDaemon returns what to do if a daemon runs here that does not answer at a path; "": none is known.
func otherDaemon(ctx context.Context, path string) string {
	for _, other := range socket.Listening() {
		if other != path && (socket.Client{Path: other}).Get(ctx, "/v1/status", nil, new(any)) == nil {
			return "a daemon answers at " + other + ": give --socket " + other
		}
	}
	if owned, _ := others.Owned(nft.TableName); owned {
		return "a daemon runs here, as a process owns its tables: give its socket (--socket, or its --vmapd-config)"
	}
	return ""
}

// examineNode adds what a daemon would know. It opens no backend, as that would load modules and make sets.
func examineNode(f *doctor.Facts, c *config.Config) {
	found, err := leftovers.NewFinder(c.IPVS()).All()
	f.Leftovers, f.Unexamined = found.String(), err
	if proxy := leftovers.Answering(c.KubeProxy.MetricsBindAddress); proxy != "" {
		f.OtherProxies = []string{proxy}
	}
	if c.Backend == config.IPTables || c.Backend == config.IPVS {
		if _, err := exec.LookPath("iptables"); err != nil {
			f.NoPrograms = []string{"iptables"}
		}
	}
	if c.Backend != config.Auto {
		f.Wants.Backend = string(c.Backend)
	}
}

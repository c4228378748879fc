package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec" //nolint:depguard // it only looks for programs
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
)

const doctorLong = `Doctor examines this node: the daemon and what it needs, the kernel, and everything
else on the node that breaks connections to Services. Each line is fail, warn or ok, with
the evidence and, below, the remedy; failures come first. It names the chains of other
programs that may drop packets; "vmapd trace" shows what they do to a connection.

It asks the running daemon for its view, at the unix socket. Without a daemon, it shows
what the node alone shows, and --config and --vmapd-config are the daemon's files. It needs
CAP_NET_ADMIN, and changes nothing.

Exit codes: 3 if a line is a failure, 1 if the node could not be examined, and 0
otherwise.

  vmapd doctor
  kubectl -n kube-system exec POD -- vmapd doctor -o json`

// examination is the subcommand that examines a node.
type examination struct {
	flags  config.Flags
	socket string
	output report.Format
}

func newDoctorCommand() *cobra.Command {
	var x examination
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine this node",
		Long:  doctorLong,
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return x.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	x.flags.AddFileFlags(f, "backend")
	f.StringVar(&x.socket, "socket", socket.DefaultPath, "the daemon's unix socket")
	report.AddFormat(f, &x.output)
	return c
}

// compareTime is how long the daemon may take to compare its tables with the kernel's.
const compareTime = 20 * time.Second

func (x *examination) run(ctx context.Context, stdout io.Writer) error {
	if err := (socket.Client{Path: x.socket}).Elsewhere(ctx); err != nil {
		return err
	}
	facts := askDaemon(ctx, x.socket)
	conf, err := config.Load(&x.flags)
	if err != nil {
		facts.ConfigError = err.Error()
	}
	switch {
	case facts.Daemon != nil:
		err := socket.Client{Path: x.socket, Deadline: compareTime}.Get(ctx, "/v1/doctor/table", nil, &facts.Table)
		switch {
		case errors.Is(err, socket.ErrLate):
			facts.Table = doctor.NotCompared(fmt.Sprintf("that takes longer than %v", compareTime))
		case err != nil:
			facts.Table = doctor.Compared("", nil, 0, []error{err})
		}
	case conf != nil:
		facts.Wants = doctor.WantsOf(conf.Conntrack, conf.Model(), nil)
		examineNode(ctx, &facts, conf)
	}
	facts.Examine(true)
	r := doctor.Diagnose(facts)
	if err := report.Print(stdout, x.output, r, r.Write); err != nil {
		return err
	}
	if code := r.ExitCode(); code != 0 {
		return exitError(code)
	}
	return nil
}

// examineQuickly examines this node without a comparison of tables, and without the rules of other programs.
func examineQuickly(ctx context.Context, path string) doctor.Report {
	if (socket.Client{Path: path}).Elsewhere(ctx) != nil {
		path = "" // it is not this node's
	}
	facts := askDaemon(ctx, path)
	facts.Examine(false)
	return doctor.Diagnose(facts)
}

// askDaemon asks the daemon what it says of itself, or notes why it does not answer.
func askDaemon(ctx context.Context, path string) doctor.Facts {
	facts := doctor.Facts{At: time.Now(), Version: buildinfo.Current().Version}
	var answer doctor.Answer
	err := socket.Client{Path: path}.Get(ctx, "/v1/doctor", nil, &answer)
	if err != nil {
		facts.NoDaemon, facts.Hangs = err.Error(), !errors.Is(err, socket.ErrNoDaemon)
		return facts
	}
	facts.Daemon, facts.Wants = &answer, answer.Wants
	return facts
}

// examineNode adds what a daemon would know. It opens no backend, as that would load modules and make sets.
func examineNode(ctx context.Context, f *doctor.Facts, c *config.Config) {
	found, _ := leftovers.NewFinder(c.IPVS()).All(true) // what it could not examine is in it
	f.Host.Leftovers, f.Host.Unexamined = found.String(), found.Unknown()
	f.Host.Listening = leftovers.ProxyMode(ctx, c.MetricsBindAddress)
	programs := map[config.Backend][]string{
		config.IPTables: {"iptables"}, config.IPVS: {"iptables", "ipset"},
	}[c.Backend]
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			f.Host.NoPrograms = append(f.Host.NoPrograms, p)
		}
	}
	if c.Backend != config.Auto {
		f.Wants.Backend = string(c.Backend)
	}
}

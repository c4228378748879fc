package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
)

const doctorLong = `Doctor examines this node: the daemon and what it needs, the kernel, and everything
else on the node that breaks connections to Services. Each line is ok, warn or fail,
with the evidence and, below, the remedy. It names the chains of other programs that
may drop packets; "vmapd trace" shows what they do to a connection.

It asks the running daemon for its view, at the unix socket. Without a daemon, it tells
what the node alone tells; the flags are those with which the daemon would run. It needs
CAP_NET_ADMIN, and changes nothing.

The exit code is that of the worst line: 0 for ok, 2 for warn, 3 for fail. It is 1 if the
node could not be examined.

  vmapd doctor
  kubectl -n kube-system exec POD -- vmapd doctor -o json`

// examination is the subcommand that examines a node.
type examination struct {
	flags  config.Flags
	socket string
	output string
}

func newDoctorCommand() *cobra.Command {
	var x examination
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine this node",
		Long:  doctorLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return x.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	x.flags.AddTrafficFlags(f)
	f.StringVar(&x.socket, "socket", socket.DefaultPath, "the daemon's unix socket")
	f.StringVarP(&x.output, "output", "o", "text", "text, json or yaml")
	return c
}

// askTime is how long the daemon may take to answer: it compares its tables with the kernel's.
const askTime = 20 * time.Second

func (x *examination) run(ctx context.Context, stdout io.Writer) error {
	if x.output != "text" && x.output != "json" && x.output != "yaml" {
		return fmt.Errorf("--output: %q is none of text, json and yaml", x.output)
	}
	facts := doctor.Facts{Version: version()}
	conf, err := config.Load(&x.flags)
	if err != nil {
		facts.ConfigError = err.Error()
	}
	var view doctor.Daemon
	asked, cancel := context.WithTimeout(ctx, askTime)
	err = socket.Client{Path: x.socket}.Get(asked, "/v1/doctor", nil, &view)
	cancel()
	switch {
	case err != nil:
		facts.NoDaemon = err.Error()
		if conf != nil {
			facts.Wants = wantsOf(conf, nil)
		}
	default:
		facts.Daemon, facts.Wants = &view, view.Wants
	}
	facts.Host = examineHost(facts.Wants, true)
	if facts.Daemon == nil && conf != nil {
		examineNode(ctx, &facts.Host, conf)
	}
	facts.At = time.Now()
	report := doctor.Diagnose(facts)
	if err := x.write(stdout, report); err != nil {
		return err
	}
	if code := report.ExitCode(); code != 0 {
		return exitError(code)
	}
	return nil
}

func (x *examination) write(stdout io.Writer, r doctor.Report) error {
	if x.output == "text" {
		_, err := io.WriteString(stdout, r.Text())
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil && x.output == "yaml" {
		text, err = yaml.JSONToYAML(text)
	} else {
		text = append(text, '\n')
	}
	if err != nil {
		return err
	}
	_, err = stdout.Write(text)
	return err
}

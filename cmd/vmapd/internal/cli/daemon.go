package cli

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/daemon"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/sync/informer"
)

// start is the command without a subcommand.
type start struct {
	config.Flags
	log *slog.Logger // nil before the configuration is read
}

// run runs the daemon, or does a task in its place. An error for which the daemon exits is a line of its log, if it has
// run, or if the log is JSON.
func (s *start) run(ctx context.Context, stderr io.Writer) error {
	running, err := s.start(ctx, stderr)
	if err == nil || !running && s.LogFormat() != config.JSONLog {
		return err
	}
	if s.log == nil {
		s.log = newLogger(stderr, config.JSONLog, slog.LevelInfo)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		s.log.Error("exiting because of an error", slog.String("err", line))
	}
	return exitError(1)
}

func (s *start) start(ctx context.Context, stderr io.Writer) (running bool, err error) {
	started := time.Now()
	c, err := config.Load(&s.Flags)
	if err != nil {
		return false, err
	}
	level := new(slog.LevelVar)
	level.Set(levelOf(int(c.KubeProxy.Logging.Verbosity)))
	s.log = newLogger(stderr, c.KubeProxy.Logging.Format, level)
	// client-go logs here where it has no other log. Other libraries use package log, such as for unknown attributes.
	klog.SetLogger(informer.Debug(s.log))
	slog.SetLogLoggerLevel(slog.LevelDebug)
	slog.SetDefault(s.log)
	if !s.InitOnly { // the daemon says them, with the same configuration
		for _, n := range c.Notes {
			s.log.LogAttrs(ctx, n.Level, "configuration", slog.String("note", n.Text))
		}
	}
	switch {
	case s.WriteConfigTo != "":
		return false, c.WriteFile(s.WriteConfigTo)
	case s.CleanUp:
		return false, leftovers.Remove(c.IPVS())
	case s.InitOnly:
		daemon.InitOnly(c, s.log)
		return false, nil
	}
	daemon.LimitMemory(s.log)
	d, err := daemon.New(daemon.Options{
		Config: c, Log: s.log, Started: started,
		SetVerbosity: func(v int) {
			s.log.Info("verbosity changed", slog.Int("v", v))
			level.Set(levelOf(v))
		},
	})
	if err != nil {
		return false, err
	}
	if err := d.Run(ctx); err != nil {
		return true, err
	}
	stopped := "stopped"
	if d.LeavesRules() {
		stopped = "stopped; the rules stay"
	}
	s.log.Info(stopped)
	return true, nil
}

func levelOf(v int) slog.Level {
	const debugFrom = 4 // kube-proxy's verbosity of debugging
	if v >= debugFrom {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func newLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == config.JSONLog {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

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

// runDaemon is the command without a subcommand: it runs the daemon, or does a task in its place. An error for which
// the daemon exits is a line of its log, if it has run, or if the log is JSON.
func runDaemon(ctx context.Context, f *config.Flags, stderr io.Writer) error {
	slog.SetDefault(newLogger(stderr, f.LogFormat(), slog.LevelInfo)) // until the configuration is read
	running, err := start(ctx, f, stderr)
	if err == nil || !running && f.LogFormat() != config.JSONLog {
		return err
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		slog.Error("exiting because of an error", slog.String("err", line))
	}
	return exitError(1)
}

func start(ctx context.Context, f *config.Flags, stderr io.Writer) (running bool, err error) {
	started := time.Now()
	c, err := config.Load(f)
	if err != nil {
		return false, err
	}
	level := new(slog.LevelVar)
	level.Set(levelOf(int(c.KubeProxy.Logging.Verbosity)))
	log := newLogger(stderr, c.KubeProxy.Logging.Format, level)
	// client-go logs here where it has no other log. Other libraries use package log, such as for unknown attributes.
	klog.SetLogger(informer.Debug(log))
	slog.SetLogLoggerLevel(slog.LevelDebug)
	slog.SetDefault(log)
	if !f.InitOnly { // the daemon says them, with the same configuration
		for _, n := range c.Notes {
			log.LogAttrs(ctx, n.Level, "configuration", slog.String("note", n.Text))
		}
	}
	switch {
	case f.WriteConfigTo != "":
		return false, c.WriteFile(f.WriteConfigTo)
	case f.CleanUp:
		return false, leftovers.Remove(c.IPVS())
	case f.InitOnly:
		daemon.InitOnly(c, log)
		return false, nil
	}
	daemon.LimitMemory(log)
	d, err := daemon.New(daemon.Options{
		Config: c, Log: log, Started: started,
		SetVerbosity: func(v int) {
			log.Info("verbosity changed", slog.Int("v", v))
			level.Set(levelOf(v))
		},
	})
	if err != nil {
		return false, err
	}
	return true, d.Run(ctx)
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

package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
)

// levelOf returns the level of the log for a verbosity.
func levelOf(v int) slog.Level {
	const debugFrom = 4 // kube-proxy's verbosity of debugging
	if v >= debugFrom {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// newLogger returns the log of the daemon, in a format of --logging-format.
func newLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == config.JSONLog {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// logFailure logs the error for which the daemon exits, so that all its lines have one format. Without a
// configuration, that is the one which the arguments ask for.
func (s *start) logFailure(ctx context.Context, stderr io.Writer, args []string, err error) {
	log := s.log
	if log == nil {
		log = newLogger(stderr, config.LogFormat(args), slog.LevelInfo)
	}
	log.LogAttrs(ctx, slog.LevelError, "exiting because of an error", slog.Any("err", err))
}

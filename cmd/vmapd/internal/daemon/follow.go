package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/metrics"
)

// follow returns an error when the configuration's files mean something else than at the start: the
// supervisor then starts the process again, and the rules stay meanwhile. An invalid file changes nothing.
func (d *base) follow(ctx context.Context, m *metrics.Metrics) error {
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	d.config.Follow(following, func(c *config.Config, err error) {
		m.ConfigRead(err)
		d.refused.Store(nil)
		if err != nil {
			text := err.Error()
			d.refused.Store(&text)
			d.log.LogAttrs(ctx, slog.LevelError, "invalid configuration; keeping the previous one", slog.Any("err", err))
			return
		}
		if fields := config.Compare(d.config, c); len(fields) > 0 {
			end(fmt.Errorf("the configuration changed (%s): it applies at the next start; the rules stay",
				strings.Join(fields, ", ")))
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(following) // nil if there is no file to follow
}

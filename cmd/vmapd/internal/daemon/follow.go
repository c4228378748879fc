package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
)

// follow returns an error when the configuration's files mean something else than at the start: the
// supervisor then starts the process again, and the rules stay meanwhile. An invalid file changes nothing.
func (d *Daemon) follow(ctx context.Context) error {
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	d.config.Follow(following, func(c *config.Config, err error) {
		d.metrics.ConfigRead(err)
		d.refused.Store(nil)
		if err != nil {
			text := err.Error()
			d.refused.Store(&text)
			d.log.ErrorContext(ctx, "invalid configuration; keeping the previous one", slog.Any("err", err))
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

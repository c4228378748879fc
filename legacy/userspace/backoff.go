package userspace

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"
)

// backoff is the pause of a receiving loop after errors that pass, such as too many open
// files. The zero value is right after a success.
type backoff struct{ last time.Duration }

const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
)

// after logs an error and pauses, longer each time. It reports false if the loop must
// end, because its socket is closed or ctx has ended.
func (b *backoff) after(ctx context.Context, log *slog.Logger, at net.Addr, err error) bool {
	if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
		return false
	}
	b.last = min(max(2*b.last, firstPause), longestPause)
	log.LogAttrs(ctx, slog.LevelWarn, "cannot receive on a listener; retrying",
		slog.Any("listener", at), slog.Any("err", err), slog.Duration("retry_in", b.last))
	select {
	case <-time.After(b.last):
		return true
	case <-ctx.Done():
		return false
	}
}

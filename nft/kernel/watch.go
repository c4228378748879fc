package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// Watched is a Backend that notices when others change its tables, where the kernel does not
// prevent it (see [Backend.Owned]).
type Watched struct {
	*Backend
	group
}

// Watch begins to listen to changes: none from now on is missed once Run is called. They are told to
// changed, without waiting for anybody to hear it. From now on the result must be used in place of b.
//
// Tables that are owned need no watch: nobody can change them, and while somebody listens, the kernel makes a message
// of each element of a batch, which takes longer than all else that it does for it.
func (b *Backend) Watch(changed chan<- struct{}) (*Watched, error) {
	w := &Watched{Backend: b, group: group{log: b.log, changed: changed}}
	if err := w.open(b.netns); err != nil {
		return nil, fmt.Errorf("watch tables: %w", err)
	}
	if err := cmp.Or(w.ignore(w.conn.socket.Port()), w.socket.JoinGroup(unix.NFNLGRP_NFTABLES)); err != nil {
		return nil, errors.Join(fmt.Errorf("watch tables: %w", err), w.socket.Close())
	}
	return w, nil
}

// Apply is that of the Backend.
func (w *Watched) Apply(ctx context.Context, s *model.Snapshot) error {
	err := w.Backend.Apply(ctx, s)
	// It may have ended with a new connection. Nothing was changed over that yet.
	port := w.conn.socket.Port()
	if port == w.ignored {
		return err
	}
	if err := w.ignore(port); err != nil {
		w.group.log.Warn("our own changes will be taken for those of others", slog.Any("err", err))
	}
	return err
}

// isOurs reports whether a message is about a table of ours, or something in it.
func isOurs(family byte, attrs []byte) bool {
	isIP := family == unix.NFPROTO_IPV4 || family == unix.NFPROTO_IPV6
	return isIP && string(nfnl.Text(nfnl.First(attrs, objectTable))) == nft.TableName
}

package socket

import (
	"context"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// trusted reports whether a user may be at the other end: root, or the user of this process, which
// is not root in a namespace of users.
func trusted(uid int) bool { return uid == 0 || uid == os.Geteuid() }

// peerKey is that of the peer's user in the context of a request.
type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peer(c))
}

// peer returns the user who has opened the other end of a connection, -1 if that is not known.
func peer(c net.Conn) int {
	uid := -1
	if raw, err := c.(*net.UnixConn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // an error means that the connection is closed
			if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				uid = int(cred.Uid)
			}
		})
	}
	return uid
}

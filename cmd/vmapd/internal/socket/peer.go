package socket

import (
	"context"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// trusted reports whether a user may be at the other end: root, or the user of this process, which
// is not root in a namespace of users.
func trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// peerKey is that of the peer's user in the context of a request.
type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	uid, err := peer(c)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

func peerOf(ctx context.Context) (uint32, bool) {
	uid, ok := ctx.Value(peerKey{}).(uint32)
	return uid, ok
}

// peer returns the user who has opened the other end of a connection.
func peer(c net.Conn) (uint32, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if e := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	return cred.Uid, nil
}

package lab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// privileged returns a *PrivilegeError unless this process may make network
// namespaces, set them up and come back from them.
func privileged() error {
	var data [2]unix.CapUserData // version 3 has 64 bits, in two words
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for _, c := range []uint{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN} {
		if data[c/32].Effective&(1<<(c%32)) == 0 {
			return &PrivilegeError{Step: "create a network namespace", Err: unix.EPERM}
		}
	}
	// After "unshare -r" without -n the process is root, but of nothing that
	// owns the network namespace it is in. Then each thread that leaves could
	// not come back, and the main thread can't be discarded like the others.
	// Entering where one is already changes nothing and asks just that.
	return onThread(func() error {
		home, err := unix.Open(threadNamespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open this process's network namespace: %w", err)
		}
		defer unix.Close(home)
		if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
			return &PrivilegeError{Step: "return to the network namespace of this process", Err: err}
		}
		return nil
	})
}

package lab

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed indicates that the namespace or the world was closed before.
	ErrClosed = errors.New("closed")

	// errNoCapabilities is the cause when a user namespace could be created,
	// but grants nothing: AppArmor and SELinux can be set up like that.
	errNoCapabilities = errors.New("the user namespace grants no CAP_SYS_ADMIN and CAP_NET_ADMIN")

	// errGoexit is what Do returns if its function ended the goroutine, as
	// testing.T.FailNow does.
	errGoexit = errors.New("function ended its goroutine")
)

// PrivilegeError reports that this process may not create network namespaces,
// and that it could not create a user namespace that would allow it.
type PrivilegeError struct {
	Step string // what was tried
	Err  error  // what the kernel said
}

// Error names the attempt, and the sysctls that decide about it.
func (e *PrivilegeError) Error() string {
	return fmt.Sprintf("network namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or user namespaces for ordinary users: %s: %v; "+
		"look at the sysctls kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, "+
		"user.max_user_namespaces and user.max_net_namespaces", e.Step, e.Err)
}

// Unwrap returns the kernel's error.
func (e *PrivilegeError) Unwrap() error { return e.Err }

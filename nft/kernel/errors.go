package kernel

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// ErrOwned indicates that another process of ours still owns the tables, as happens
// while one instance replaces another. It passes once that one has ended.
var ErrOwned error = ownedError{}

type ownedError struct{}

func (ownedError) Error() string { return "owned by another process; waiting for it to end" }

// Waiting tells the caller of Apply to try again soon, see sync/reconcile.
func (ownedError) Waiting() {}

// ErrNotPermitted indicates that this process must not administer the network.
var ErrNotPermitted = nfnl.ErrNotPermitted

// BatchError is a batch that the kernel refused. Nothing of it was carried out.
type BatchError struct {
	Step    string // the operation that failed; empty if the kernel did not say
	Message string // the kernel's own words, often empty
	Err     error

	port *model.ServicePort
}

func (e *BatchError) Error() string {
	s := "batch refused"
	if e.Step != "" {
		s += ": " + e.Step
	}
	if e.port != nil {
		s += fmt.Sprintf(" (Service %v)", e.port.Name)
	}
	reason := e.Err
	if op, ok := errors.AsType[*netlink.OpError](e.Err); ok {
		reason = op.Err
	}
	s += ": " + reason.Error()
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

func (e *BatchError) Unwrap() error { return e.Err }

// isTransient reports whether the same messages may work at another time: there was no memory, no room for a
// message or its answer, or the kernel was interrupted.
func isTransient(err error) bool {
	return errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR)
}

// isLack reports whether an error of a probe says that the kernel lacks something. EBUSY does: Linux before 4.18 allows
// one NAT hook only, of nftables or of iptables.
func isLack(err error) bool { return isReply(err) && !isTransient(err) }

// UnsupportedError is a feature that this kernel lacks.
type UnsupportedError struct {
	Feature string // the missing feature, like "nft_fib (CONFIG_NFT_FIB_IPV4)"
	Since   string // the Linux version that brought it
	Family  string
	Without string // the consequence; "": other backends must be used
	Err     error
}

func (e *UnsupportedError) Error() string {
	without := cmp.Or(e.Without, "--backend=ipvs and --backend=iptables do without")
	const text = "this kernel lacks %s for %s (in Linux since %s, and in the configuration of most distributions); %s: %v"
	return fmt.Sprintf(text, e.Feature, e.Family, e.Since, without, e.Err)
}

func (e *UnsupportedError) Unwrap() error { return e.Err }

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
)

// RuleWatch notices when others change chains of iptables-nft, or the rules of further chains that
// lead there.
type RuleWatch struct{ group }

// RuleWatchOptions configures a RuleWatch.
type RuleWatchOptions struct {
	Log   *slog.Logger
	NetNS int // the network namespace; 0: this thread's
	// Prefix begins the names of the chains, and Ours selects some of those that it begins.
	Prefix string
	Ours   func(chain string) bool
	// Changed is told when others may have changed them, without waiting for anybody to hear it.
	Changed chan<- struct{}
}

// WatchRules begins to listen to changes: none from now on is missed once Run is called.
func WatchRules(o RuleWatchOptions) (*RuleWatch, error) {
	w := &RuleWatch{group{log: o.Log, changed: o.Changed, concerns: func(message uint16, family byte, attrs []byte) bool {
		return isIP(family) && isRuleOrChain(message) && mentions(attrs, []byte(o.Prefix), o.Ours)
	}}}
	if err := w.open(o.NetNS); err != nil {
		return nil, fmt.Errorf("watch rules: %w", err)
	}
	if err := w.join(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch rules: %w", err), w.socket.Close())
	}
	return w, nil
}

// Ignore takes what a port changes from now on for our own, until the next call. The programs of
// iptables-nft have their process ID as the port. Another process, in another container, may have
// the same ID, but never the port at the same time: so nobody's changes are ignored, by port 0, as
// soon as our process has ended. The kernel applies this while it commits, so nothing of that
// process is on its way then.
func (w *RuleWatch) Ignore(port uint32) error { return w.ignore(port) }

func isRuleOrChain(message uint16) bool {
	switch message {
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		return true
	}
	return false
}

// mentions reports whether a message has the name of a chain of ours: as the rule's or chain's own
// or, in a rule, as the chain that it leads to. A zero ends each name. To look at bytes costs less
// than to take the expressions of all rules of others apart.
func mentions(message, prefix []byte, ours func(chain string) bool) bool {
	for {
		at := bytes.Index(message, prefix)
		if at < 0 {
			return false
		}
		name, rest, _ := bytes.Cut(message[at:], []byte{0})
		if ours(string(name)) {
			return true
		}
		message = rest
	}
}

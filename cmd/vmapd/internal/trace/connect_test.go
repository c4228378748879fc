package trace

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft/tracer"
)

// No hook has seen the connection that vmapd made: how it ended says why.
func TestUnseen(t *testing.T) {
	w := Watch{Filter: tracer.Filter{Dest: vip}}
	for want, err := range map[string]error{
		"no packet was sent: this node has no route to 172.30.0.10": unix.ENETUNREACH,
		"no packet was sent: operation not permitted":               unix.EPERM,
		"saw the connection (it succeeded)":                         nil,
		"saw the connection (refused)":                              unix.ECONNREFUSED,
		"saw the connection (no answer in time)":                    os.ErrDeadlineExceeded,
	} {
		if got := w.unseen(err).Error(); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

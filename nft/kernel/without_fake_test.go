package kernel

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// A kernel without flowtables, or without timeout policies, is programmed as if nobody asked for them, and the log says
// so once for each family.
func TestAKernelWithoutAnOption(t *testing.T) {
	for _, tt := range []struct {
		says       string
		noTimeouts bool
	}{{"connections take the usual path", false}, {withoutRetry, true}} {
		t.Run(tt.says, func(t *testing.T) {
			k, usual, log := &nftfake.Kernel{}, &nftfake.Kernel{}, &bytes.Buffer{}
			if tt.noTimeouts {
				k.Fail(failing(unix.NFT_MSG_NEWOBJ, nftfake.Invalid))
				usual.Fail(failing(unix.NFT_MSG_NEWOBJ, nftfake.Invalid))
			}
			b := openAs(t, Options{FastPath: !tt.noTimeouts, Dial: fakeDialer(k), Log: slog.New(slog.NewTextHandler(log, nil))})
			b.SetDevices([]string{"eth0"})
			s := exampleBuilder().Snapshot()
			for range 2 {
				apply(t, b, s)
				b.Resync()
			}
			if n := strings.Count(log.String(), "msg=\""+tt.says); n != len(model.Families) {
				t.Errorf("the log says it %d times, want once for each family:\n%s", n, log)
			}
			if lacks := b.RetryLacks() != nil; lacks != tt.noTimeouts {
				t.Errorf("RetryLacks names something: %v", lacks)
			}
			apply(t, openFake(t, usual), s)
			testaid.Equal(t, "the tables", fakeContents(t, usual, s), fakeContents(t, k, s))
		})
	}
}

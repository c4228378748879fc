package kernel

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// A kernel without flowtables, or without timeout policies, is programmed as if nobody asked for them, and the log says
// so once for each family.
func TestAKernelWithoutAnOption(t *testing.T) {
	for _, tt := range []struct {
		says string
		k    *nftfake.Kernel
	}{{"connections take the usual path", &nftfake.Kernel{}}, {withoutRetry, &nftfake.Kernel{NoTimeouts: true}}} {
		t.Run(tt.says, func(t *testing.T) {
			k, log := tt.k, &bytes.Buffer{}
			b := openAs(t, Options{FastPath: !k.NoTimeouts, Dial: fakeDialer(k), Log: slog.New(slog.NewTextHandler(log, nil))})
			b.SetDevices([]string{"eth0"})
			s := exampleBuilder().Snapshot()
			for range 2 {
				apply(t, b, s)
				b.Resync()
			}
			if n := strings.Count(log.String(), "msg=\""+tt.says); n != len(model.Families) {
				t.Errorf("the log says it %d times, want once for each family:\n%s", n, log)
			}
			if lacks := b.RetryLacks() != nil; lacks != k.NoTimeouts {
				t.Errorf("RetryLacks names something: %v", lacks)
			}
			usual := &nftfake.Kernel{NoTimeouts: k.NoTimeouts}
			apply(t, openFake(t, usual), s)
			if diff := cmp.Diff(fakeContents(t, usual, s), fakeContents(t, k, s)); diff != "" {
				t.Errorf("the tables (-want +got):\n%s", diff)
			}
		})
	}
}

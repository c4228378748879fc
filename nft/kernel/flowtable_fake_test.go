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

// A kernel without flowtables is programmed as without the fast path, and the log says so once for
// each family.
func TestAKernelWithoutFlowtables(t *testing.T) {
	k, log := &nftfake.Kernel{}, &bytes.Buffer{}
	b := openAs(t, Options{FastPath: true, Dial: fakeDialer(k), Log: slog.New(slog.NewTextHandler(log, nil))})
	b.SetDevices([]string{"eth0"})
	s := exampleBuilder().Snapshot()
	for range 2 {
		apply(t, b, s)
		b.Resync()
	}
	if n := strings.Count(log.String(), "msg=\"connections take the usual path"); n != len(model.Families) {
		t.Errorf("the log says it %d times, want once for each family:\n%s", n, log)
	}
	usual := &nftfake.Kernel{}
	apply(t, openFake(t, usual), s)
	if diff := cmp.Diff(fakeContents(t, usual, s), fakeContents(t, k, s)); diff != "" {
		t.Errorf("the tables (-want +got):\n%s", diff)
	}
}

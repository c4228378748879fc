package kernel

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// A kernel without flowtables is programmed as without the fast path, and the log says so once for
// each family.
func TestAKernelWithoutFlowtables(t *testing.T) {
	k, log := &nftfake.Kernel{}, &bytes.Buffer{}
	b, err := Open(Options{FastPath: true, Dial: fakeDialer(k), Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	b.SetDevices([]string{"eth0"})
	s := exampleBuilder().Snapshot()
	for range 2 {
		apply(t, b, s)
		b.Resync()
	}
	if n := strings.Count(log.String(), "no fast path"); n != len(model.Families) {
		t.Errorf("the log says it %d times, want once for each family:\n%s", n, log)
	}
	usual := &nftfake.Kernel{}
	apply(t, openFake(t, usual), s)
	if diff := cmp.Diff(fakeContents(t, usual, s), fakeContents(t, k, s)); diff != "" {
		t.Errorf("the tables (-want +got):\n%s", diff)
	}
}

// Devices are read from what the kernel lists.
func TestFlowtableMessagesNameDevices(t *testing.T) {
	m := messages{family: model.IPv4, table: nft.TableName}
	m.addFlowtable(compile.Options{FastPath: true}.Flowtables()[0], []string{"eth0", "cali1"})
	if m.err != nil {
		t.Fatal(m.err)
	}
	const headers = unix.SizeofNlMsghdr + 4
	attrs := m.b[headers:]
	var got []string
	for d := range nfnl.Attributes(nfnl.First(nfnl.First(attrs, flowtableHook), flowtableDevices), deviceName) {
		got = append(got, string(nfnl.Text(d)))
	}
	if diff := cmp.Diff([]string{"eth0", "cali1"}, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if name := string(nfnl.Text(nfnl.First(attrs, flowtableName))); name != nft.FastPath {
		t.Errorf("got the name %q", name)
	}
	if n := nfnl.Uint32(nfnl.First(attrs, flowtableFlags)); n != flowtableCounter {
		t.Errorf("got the flags %d", n)
	}
}

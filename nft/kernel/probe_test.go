package kernel

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// A probe leaves nothing in the kernel.
func TestAProbeLeavesNothing(t *testing.T) {
	n := newNetNS(t)
	for range 2 {
		b := openAs(t, Options{NetNS: n.fd(), Counters: true, FastPath: true})
		for _, st := range b.families {
			if err := st.lacks[retryNeeds]; err != nil {
				t.Error(err)
			}
		}
	}
	if listing := n.nft(t, "", "list", "ruleset"); listing != "" {
		t.Errorf("the probe left:\n%s", listing)
	}
}

// An expression is refused as by a kernel without its module.
func TestProbeNamesWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		message  uint16
		in       string
		feature  string
		isOption bool
	}{
		{unix.NFT_MSG_NEWRULE, "fib\x00", "nft_fib", false},
		{unix.NFT_MSG_NEWRULE, "hash\x00", "nft_hash", false},
		{unix.NFT_MSG_NEWRULE, "numgen\x00", "nft_numgen", false},
		{unix.NFT_MSG_NEWRULE, "masq\x00", "nft_masq", false},
		{unix.NFT_MSG_NEWRULE, "reject\x00", "nft_reject", false},
		{unix.NFT_MSG_NEWCHAIN, "nat\x00", "NAT chains", false},
		{unix.NFT_MSG_NEWSET, nft.SourceRanges(model.TCP), "nft_set_pipapo", false},
		{unix.NFT_MSG_NEWTABLE, "", "nf_tables (CONFIG_NF_TABLES)", false},
		{unix.NFT_MSG_NEWSET, nft.ServiceCounters, "nft_counter", false},
		{unix.NFT_MSG_NEWRULE, "limit\x00", "CONFIG_NFT_LIMIT", true},
		{unix.NFT_MSG_NEWOBJ, "", "CONFIG_NF_CONNTRACK_TIMEOUT", true},
	} {
		t.Run(tt.feature, func(t *testing.T) {
			k, log := &nftfake.Kernel{}, &bytes.Buffer{}
			k.Fail(failing(tt.message, nftfake.Invalid, []byte(tt.in)))
			b, err := Open(Options{Dial: fakeDialer(k), Counters: true, Log: slog.New(slog.NewTextHandler(log, nil))})
			text := log.String()
			if tt.isOption {
				if err != nil || len(b.families) != len(model.Families) {
					t.Fatalf("an option can't be: %v", err)
				}
			} else {
				var missing *UnsupportedError
				if !errors.As(err, &missing) || !errors.Is(err, unix.EINVAL) {
					t.Fatalf("got %v, want an UnsupportedError", err)
				}
				if text = err.Error(); !strings.Contains(text, "--backend=ipvs") {
					t.Errorf("%q names no other backend", text)
				}
			}
			for _, f := range model.Families {
				if !strings.Contains(text, tt.feature) || !strings.Contains(text, f.String()) {
					t.Errorf("%q does not say %q, or not for %v", text, tt.feature, f)
				}
			}
		})
	}
}

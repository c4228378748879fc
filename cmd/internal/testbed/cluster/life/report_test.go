package life

import (
	"errors"
	"testing"
)

func TestOnlyVMAPDsLossesAreErrors(t *testing.T) {
	lost := []Count{{New: 10, Lost: 1}}
	if err := (&Result{Proxy: VMAPD, Counts: lost}).Err(); err == nil {
		t.Error("vmapd's loss is no error")
	}
	if err := (&Result{Proxy: "kube-proxy:nftables", Counts: lost}).Err(); err != nil {
		t.Error(err)
	}
	if err := (&Result{Failure: errors.New("no")}).Err(); err == nil {
		t.Error("a step that failed is no error")
	}
}

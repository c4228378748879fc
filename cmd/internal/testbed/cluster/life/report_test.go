package life

import "testing"

func TestOnlyVMAPDsLossesAreErrors(t *testing.T) {
	lost := []Count{{New: 10, Lost: 1}}
	if err := (&Result{Proxy: VMAPD, Counts: lost}).Err(); err == nil {
		t.Error("vmapd's loss is no error")
	}
	if err := (&Result{Proxy: "kube-proxy:nftables", Counts: lost}).Err(); err != nil {
		t.Error(err)
	}
	for _, r := range []Result{{Error: "no"}, {Different: "no"}} {
		if r.Err() == nil {
			t.Errorf("%+v is no error", r)
		}
	}
}

package xtables

import (
	"testing"

	"github.com/vmapd/vmapd/model"
)

func TestRead(t *testing.T) {
	for _, f := range model.Families {
		named := entryOf(f, 0, "REJECT", []byte{1, 2, 3, 4, 0, 0, 0, 0})
		named[layouts[f].size] = targetData + 8 // the target's size
		accepts := entryOf(f, 0, "", verdict(accept))
		accepts[layouts[f].size] = targetData + 8
		at, bit := gotoBit(f)
		accepts[at] |= bit
		started := begin(f, "chain")
		table := table(f, 1, named, accepts, started, accepts, begin(f, errorName))
		got, err := table.Read()
		if err != nil || len(got) != 4 {
			t.Fatalf("%v: %v, %d entries", f, err, len(got))
		}
		if e := got[0]; e.Target.Name != "REJECT" || len(e.Target.Data) != 8 || e.Goto || len(e.Head) != layouts[f].targetOffset {
			t.Errorf("%v: %+v", f, e)
		}
		if e := got[1]; e.Target.Name != "" || e.Verdict != accept || !e.Goto {
			t.Errorf("%v: %+v", f, e)
		}
		if e := got[2]; e.Chain != "chain" || e.End != got[3].Offset {
			t.Errorf("%v: %+v", f, e)
		}
	}
	// An extension that is longer than its entry is an error.
	long := entryOf(model.IPv4, 0, "X", nil)
	long[layouts[model.IPv4].size] = 255
	if _, err := table(model.IPv4, 0, long, begin(model.IPv4, errorName)).Read(); err == nil {
		t.Error("no error")
	}
}

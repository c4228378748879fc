package kernel

import (
	"errors"
	"testing"
)

// A table that another process owns is left alone by the real kernel, too.
func TestATableOfAnotherProcess(t *testing.T) {
	n := newNetNS(t)
	s := exampleBuilder().Snapshot()
	first := open(t, n)
	if !first.Owned() {
		t.Skip("this kernel lacks table flags owner and persist (Linux 6.9)")
	}
	apply(t, first, s)
	second := open(t, n)
	if err := second.Apply(t.Context(), s); !errors.Is(err, ErrOwned) || !second.Owned() {
		t.Errorf("got %v, want ErrOwned; owned: %v", err, second.Owned())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	apply(t, second, s)
	if !second.families[0].owned {
		t.Error("not claimed")
	}
}

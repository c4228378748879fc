package host

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/vmapd/vmapd/model"
)

// A comparison takes seconds, in which Apply changes rules: what it finds of that is no foreign change. A difference
// that stays is one.
func TestAnApplyDuringAComparisonIsNoForeignChange(t *testing.T) {
	for name, tt := range map[string]struct {
		found   []string // by each comparison, of IPv4
		applies int      // so many comparisons have an Apply beside them
		want    uint64
	}{
		"nothing":                         {[]string{""}, 0, 0},
		"a difference":                    {[]string{"a"}, 0, 1},
		"the difference is Apply's":       {[]string{"a", ""}, 1, 0},
		"another one each time":           {[]string{"a", "b"}, 2, 0},
		"it stays beside one that goes":   {[]string{"ax", "bx", "x"}, 2, 1},
		"it stays while Apply is at work": {[]string{"ax", "bx", "cx"}, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var state watchable
			apply := func() { state.inForce.Store(model.NewBuilder(model.Config{}).Snapshot()) }
			apply()
			told := make(chan struct{}, 1)
			w := &Watch{watchable: &state, log: slog.New(slog.DiscardHandler), changed: told}
			comparisons := 0
			w.compare = func(_ context.Context, f model.Family, _ *model.Snapshot) (list []string, err error) {
				if f == model.IPv6 {
					return nil, nil
				}
				if comparisons++; comparisons > len(tt.found) {
					return nil, errors.New("one comparison too many")
				}
				for _, d := range tt.found[comparisons-1] {
					list = append(list, string(d))
				}
				if comparisons <= tt.applies {
					apply()
				}
				return list, nil
			}
			if w.Compare(t.Context()); w.failed || comparisons != len(tt.found) {
				t.Errorf("%d comparisons, want %d", comparisons, len(tt.found))
			}
			if got := w.Changes(); got != tt.want || len(told) != int(tt.want) {
				t.Errorf("%d changes are noticed, %d are told, want %d", got, len(told), tt.want)
			}
			state.inForce.Store(nil)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if w.Compare(ended); w.failed {
				t.Error("there was a comparison during Apply")
			}
		})
	}
}

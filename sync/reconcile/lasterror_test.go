package reconcile

import (
	"errors"
	"testing"
)

func TestAnErrorDiffersOnce(t *testing.T) {
	var last LastError
	for i, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false}, // a success is no news at first
		{errors.New("full"), true},
		{errors.New("full"), false}, // the same text by another value
		{errors.New("empty"), true},
		{errors.New("full"), true},
		{nil, true}, // the end
		{nil, false},
		{errors.New("full"), true}, // again
	} {
		if got := last.Differs(tt.err); got != tt.want {
			t.Errorf("result %d, %v: want %v, got %v", i, tt.err, tt.want, got)
		}
	}
}

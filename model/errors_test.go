package model_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

func TestWhatAnErrorLeavesUnprogrammed(t *testing.T) {
	type ports = map[model.ServicePortName]bool
	other, bad := errors.New("other"), ports{{Port: "bad"}: true}
	v4, v6 := &model.FamilyError{Family: model.IPv4, Err: other}, &model.FamilyError{Family: model.IPv6, Err: other}
	refused := &model.FamilyError{Family: model.IPv6, Ports: bad, Err: errors.Join(other, other)}
	for _, tt := range []struct {
		err      error
		families [2]bool
		ports    [2]ports
	}{
		{nil, [2]bool{}, [2]ports{}},
		{v4, [2]bool{true, false}, [2]ports{}},
		{fmt.Errorf("step: %w", v6), [2]bool{false, true}, [2]ports{}},
		{errors.Join(v4, fmt.Errorf("step: %w", v6)), [2]bool{true, true}, [2]ports{}},
		{other, [2]bool{true, true}, [2]ports{}},
		{errors.Join(v4, other), [2]bool{true, true}, [2]ports{}},
		{fmt.Errorf("both: %w, %w", v6, v6), [2]bool{false, true}, [2]ports{}},
		{refused, [2]bool{}, [2]ports{model.IPv6: bad}},
		{errors.Join(v4, fmt.Errorf("step: %w", refused)), [2]bool{true, false}, [2]ports{model.IPv6: bad}},
		{errors.Join(refused, other), [2]bool{true, true}, [2]ports{model.IPv6: bad}},
	} {
		families, ports := model.Failures(tt.err)
		if families != tt.families || !cmp.Equal(ports, tt.ports) {
			t.Errorf("Failures(%v) = %v, %v, want %v, %v", tt.err, families, ports, tt.families, tt.ports)
		}
		if got, want := model.IsProgrammed(tt.err), tt.families == [2]bool{}; got != want {
			t.Errorf("IsProgrammed(%v) = %v, want %v", tt.err, got, want)
		}
	}
}

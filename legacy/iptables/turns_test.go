package iptables_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Whatever the pattern in which a program calls Services, each of them takes turns for itself.
func TestServicesTakeTurnsForThemselves(t *testing.T) {
	b, patterns := modeltest.RoundRobin()
	s := b.Snapshot().Family(model.IPv4)
	for name, pattern := range patterns {
		t.Run(name, func(t *testing.T) {
			sim := simulate(t, load(t, iptables.Compile(nil, s, options[0])), s)
			sim.TakeTurns()
			if err := modeltest.CheckTurns(pattern, func(c model.Connection) (netip.AddrPort, error) {
				o, err := sim.Run(c)
				if err == nil && len(o.To) != 1 {
					err = fmt.Errorf("%v goes to %v", c.Dest, o.To)
				}
				for to := range o.To {
					return to, err
				}
				return netip.AddrPort{}, err
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

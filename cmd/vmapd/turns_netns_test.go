package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

// A program that calls Services alternately, or one Service by several addresses, gets all
// endpoints of each in turn.
func TestServicesTakeTurnsForReal(t *testing.T) {
	t.Parallel()
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	b, patterns := modeltest.RoundRobin()
	snapshot := b.Snapshot()
	var text strings.Builder
	for _, f := range model.Families {
		text.WriteString(nft.Compile(nil, snapshot.Family(f)).String())
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if p.name == byIPVS {
				needIPVS(t)
			}
			w, err := lab.New(t.Context(), lab.Config{Pods: podCount, Ports: []uint16{8080, 8081, 8082}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			})
			p.load(t, text.String(), snapshot, w.Node)
			for name, pattern := range patterns {
				if p.name == byIPVS {
					pattern = independent(pattern)
				}
				err := checkTurns(t, w, pattern)
				for range 2 { // a packet that is lost and sent again has taken a turn
					if err != nil {
						err = checkTurns(t, w, pattern)
					}
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// independent makes a group of each frontend: see ipvs.Differences.
func independent(pattern []modeltest.Turn) []modeltest.Turn {
	pattern = slices.Clone(pattern)
	for i, turn := range pattern {
		pattern[i].Group = slices.IndexFunc(pattern, func(o modeltest.Turn) bool { return o.Connection == turn.Connection })
	}
	return pattern
}

func checkTurns(t *testing.T, w *lab.World, pattern []modeltest.Turn) error {
	t.Helper()
	pods := map[string]netip.Addr{}
	for _, p := range w.Pods() {
		pods[p.Name()] = p.IP4
	}
	return modeltest.CheckTurns(pattern, func(c model.Connection) (netip.AddrPort, error) {
		a, err := w.Client.Ask(t.Context(), "tcp4", c.Dest)
		return netip.AddrPortFrom(pods[a.Pod], 0), err
	})
}

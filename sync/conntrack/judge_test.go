package conntrack

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// While the kernel lists flows, rounds go on: each flow is judged by what is known when it is listed.
func TestAPassFollowsTheRoundsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, append(dnsSlices(nil, 2), dns())...)
		var stale []bool
		b.sweep = func(_ context.Context, of model.Family, _ Filter, judge func(*Flow) bool) (int, int, bool, error) {
			if of == model.IPv6 || stale != nil {
				return 0, 0, true, nil
			}
			f := parse(t, "udp 172.30.0.10:53 from 10.0.0.3:8053")
			stale = append(stale, judge(&f)) // 10.0.0.3 is no endpoint
			for _, o := range dnsSlices(nil, 2, 3) {
				o.Set(b.Builder)
			}
			b.Begins(b.Snapshot())
			stale = append(stale, judge(&f)) // it is about to be one
			b.apply()
			stale = append(stale, judge(&f))
			dnsSlices(nil, 2)[0].(modeltest.Slice).Set(b.Builder)
			b.apply()
			return 3, 2, true, nil
		}
		b.apply()
		synctest.Wait()
		if len(stale) != 3 || !stale[0] || stale[1] || stale[2] {
			t.Errorf("the flow is stale: %v, want only at first", stale)
		}
	})
}

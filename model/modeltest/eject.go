package modeltest

import (
	"math/rand/v2"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Steps makes n changes and applies them, and then one of what is ejected.
func (r *Random) Steps(b *model.Builder, n int) {
	for range n {
		r.Step().Apply(b)
	}
	r.Eject().Apply(b)
}

// Eject makes a change of what is ejected: some endpoints and, now and then, another Node. It takes no numbers from the
// source, so that the other choices do not depend on it.
func (r *Random) Eject() Change {
	r.ejections++
	own := rand.New(rand.NewPCG(r.ejections, uint64(len(r.objects))))
	e := &model.Ejections{}
	for _, f := range model.Families {
		for n := range 12 {
			for _, port := range []uint16{53, 8080, 8081} {
				if own.IntN(4) == 0 {
					at := netip.AddrPortFrom(Pod(f, n), port)
					e.Endpoints = append(e.Endpoints, model.Ejection{Endpoint: at, Since: Moment(n)})
				}
			}
		}
	}
	if own.IntN(4) == 0 {
		e.Nodes = []model.Ejection{{Node: "node-2", Since: Moment(0)}}
	}
	r.ejected = e
	return Change{Ejected: e}
}

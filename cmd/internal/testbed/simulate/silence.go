package simulate

import (
	"context"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/sync/outlier"
)

// besideAll is how much later than everything else the detector of silent endpoints begins: what happens at one instant
// has no order.
const besideAll = 70 * time.Nanosecond

// attempt is a client's connection to an endpoint that does not answer.
type attempt struct {
	endpoint netip.AddrPort
	client   netip.Addr
}

// repeated are the packets that it sent again.
type repeated struct {
	packets int
	last    time.Time
}

// repeat lets a client send its first packet again, if nobody answers. The caller holds the mutex.
func (w *world) repeat(c model.Connection, to netip.AddrPort) {
	if c.Protocol != model.TCP || !w.server.silent[to] {
		return
	}
	at := attempt{to, c.Source}
	r := w.repeated[at]
	w.repeated[at] = repeated{r.packets + 1 + w.probes.IntN(2), time.Now()}
}

// call lets clients call silent endpoints, which few random packets reach. The caller holds the mutex.
func (w *world) call() {
	s := w.between[len(w.between)-1]
	if s == nil {
		return
	}
	for _, f := range model.Families {
		for sp := range s.Family(f).ServicePorts() {
			for _, e := range sp.Endpoints {
				if w.probes.IntN(2) == 0 {
					client := modeltest.Pod(f, w.probes.IntN(3))
					w.repeat(model.Connection{Protocol: sp.Name.Protocol, Source: client}, e.Addr)
				}
			}
		}
	}
}

// attempts is what the kernel has counted. A storm affects it, too.
func (w *world) attempts(context.Context) (list []model.Attempt, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, r := range w.repeated {
		if time.Since(r.last) > nft.UnansweredFor {
			delete(w.repeated, at)
			continue
		}
		list = append(list, model.Attempt{Endpoint: at.endpoint, Client: at.client, Packets: r.packets})
	}
	return list, nil
}

// ask asks an endpoint. One question in eight is lost.
func (d *daemon) ask(ctx context.Context, at netip.AddrPort) outlier.Answer {
	const patience, soon, lossOf = time.Second, time.Millisecond, 8
	w := d.w
	h := fnv.New32a()
	_, _ = h.Write([]byte(at.String() + time.Now().String()))
	w.mu.Lock()
	silent := w.server.silent[at] || h.Sum32()%lossOf == 0 && !w.clear
	w.mu.Unlock()
	takes, answer := soon, outlier.Answered
	if silent {
		takes, answer = patience, outlier.Silence
	}
	select {
	case <-ctx.Done():
		return outlier.Unknown
	case <-time.After(takes + time.Duration(h.Sum32()%1000)):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("%v is asked: %v", at, answer)
	if answer == outlier.Answered {
		w.answered[at] = time.Now()
	} else {
		delete(w.answered, at)
	}
	return answer
}

// mustReturn checks that an endpoint which has answered is not ejected any more. The caller holds the mutex.
func (w *world) mustReturn() {
	if w.daemon == nil {
		return
	}
	for at, since := range w.answered {
		if _, ejected := w.daemon.silence.Ejections().Endpoint(at); ejected && time.Since(since) > time.Millisecond {
			w.fail("%v has answered %v ago, and is still ejected", at, time.Since(since))
		}
	}
}

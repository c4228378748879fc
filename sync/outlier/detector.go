package outlier

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/logonce"
	"github.com/vmapd/vmapd/sync/reconcile"
)

const (
	// readEvery is the pause between readings, and readSoon while an endpoint is suspect.
	readEvery = 500 * time.Millisecond
	readSoon  = 100 * time.Millisecond
	// share is how many times as long as a reading the pause after it is, at least: 65,535 clients take time.
	share = 4
	// patience is how long an endpoint that is asked may be silent. TCP sends its first packet once in that time.
	patience = time.Second
	// mostAsked and asksPerSecond bound the questions of this node.
	mostAsked     = 32
	asksPerSecond = 64
)

// Options of a Detector.
type Options struct {
	NodeName string
	State    *reconcile.State
	// Attempts reads what clients sent again because no answer came.
	Attempts func(context.Context) ([]model.Attempt, error)
	// Ask asks an endpoint; nil: by a connection. It is for tests.
	Ask func(context.Context, netip.AddrPort) Answer
	// Shuffle orders the endpoints of a Node, of which the first are asked about it; nil: rand.Shuffle. It is for tests.
	Shuffle Shuffle
	Log     *slog.Logger
}

// Detector ejects endpoints that do not answer. It is a reconcile.Observer, and does its work in Run.
type Detector struct {
	options Options
	rounds  *reconcile.Follower[*model.Snapshot]

	said atomic.Pointer[model.Ejections]

	mu      sync.Mutex
	answers []given

	// The rest is Run's.
	judge   *judge
	asking  int
	limit   *rate.Limiter
	failure logonce.Error
}

// given is an endpoint's answer.
type given struct {
	at     netip.AddrPort
	answer Answer
}

// New returns a Detector.
func New(o Options) *Detector {
	if o.Ask == nil {
		o.Ask = connect
	}
	if o.Shuffle == nil {
		o.Shuffle = rand.Shuffle
	}
	d := &Detector{
		options: o, rounds: reconcile.NewFollower[*model.Snapshot](nil),
		judge: newJudge(o.NodeName, places{o.State}, o.Shuffle),
		limit: rate.NewLimiter(asksPerSecond, asksPerSecond),
	}
	d.said.Store(&model.Ejections{})
	return d
}

// Ejections returns what is ejected now.
func (d *Detector) Ejections() *model.Ejections { return d.said.Load() }

// places asks the state.
type places struct{ *reconcile.State }

func (p places) NodeOf(service model.NamespacedName, a netip.Addr) (node string) {
	p.Look(func(b *model.Builder) { node = b.NodeOf(service, a) })
	return node
}

func (p places) Places(node string, except netip.Addr) (list []model.Place) {
	p.Look(func(b *model.Builder) { list = b.Places(node, except) })
	return list
}

// Done implements reconcile.Observer.
func (d *Detector) Done(round reconcile.Round) {
	woken := false
	d.rounds.With(func(s **model.Snapshot) {
		woken = *s == nil || !(*s).DetectsOutliers()
		*s = round.Snapshot
	})
	if woken {
		d.rounds.Wake()
	}
}

// Run detects until ctx ends. What it has ejected then stays in the state.
func (d *Detector) Run(ctx context.Context) {
	d.rounds.Run(ctx, func() time.Duration { return d.work(ctx) })
}

// work takes answers and a reading, and asks. It returns the time until it is to be called again.
func (d *Detector) work(ctx context.Context) time.Duration {
	var s *model.Snapshot
	d.rounds.With(func(last **model.Snapshot) { s = *last })
	if s == nil || !s.DetectsOutliers() && d.judge.idle() {
		return -1
	}
	now := time.Now()
	for _, g := range d.take() {
		d.asking--
		d.judge.answered(now, g.at, g.answer)
	}
	attempts, err := d.options.Attempts(ctx)
	if d.failure.Differs(err) && err != nil && ctx.Err() == nil {
		d.options.Log.Warn("cannot read which connections got no answer", slog.Any("err", err))
	}
	d.judge.observe(now, attempts, s)
	for _, at := range d.judge.due(now) {
		if d.asking == mostAsked || !d.limit.AllowN(now, 1) {
			break
		}
		d.judge.ask(at)
		d.asking++
		go d.ask(ctx, at)
	}
	d.report()
	if d.judge.idle() {
		return max(readEvery, share*time.Since(now))
	}
	return max(readSoon, share*time.Since(now))
}

func (d *Detector) ask(ctx context.Context, at netip.AddrPort) {
	g := given{at, d.options.Ask(ctx, at)}
	d.mu.Lock()
	d.answers = append(d.answers, g)
	d.mu.Unlock()
	d.rounds.Wake()
}

// take returns the answers since the last call, in an order that chance does not change.
func (d *Detector) take() []given {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.answers
	d.answers = nil
	slices.SortFunc(all, func(a, b given) int { return a.at.Compare(b.at) })
	return all
}

// report gives the state what is ejected now, if it differs, and logs the difference.
func (d *Detector) report() {
	now, old := d.judge.ejections(), d.said.Load()
	added, gone := difference(old, now), difference(now, old)
	if len(added)+len(gone) == 0 {
		return
	}
	d.said.Store(now)
	d.options.State.Update(reconcile.Change{}, func(b *model.Builder) { b.SetEjections(now) })
	for _, e := range added {
		text := "an endpoint does not answer; new connections go to others, unless most are silent"
		if !e.Endpoint.IsValid() {
			text = "endpoints of a Node do not answer; new connections go to those of other Nodes, unless most are silent"
		}
		d.options.Log.LogAttrs(context.Background(), slog.LevelWarn, text, about(e)...)
	}
	for _, e := range gone {
		d.options.Log.LogAttrs(context.Background(), slog.LevelInfo, "no longer ejected", about(e)...)
	}
}

func about(e model.Ejection) (attrs []slog.Attr) {
	if e.Endpoint.IsValid() {
		attrs = append(attrs, slog.String("endpoint", e.Endpoint.String()))
	}
	return append(attrs, slog.String("node", e.Node))
}

// difference returns what is in now, and not in old.
func difference(old, now *model.Ejections) (list []model.Ejection) {
	for _, e := range slices.Concat(now.Endpoints, now.Nodes) {
		had := false
		if e.Endpoint.IsValid() {
			_, had = old.Endpoint(e.Endpoint)
		} else {
			_, had = old.Node(e.Node)
		}
		if !had {
			list = append(list, e)
		}
	}
	return list
}

// connect asks an endpoint by a connection, which it may refuse.
func connect(ctx context.Context, at netip.AddrPort) Answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", at.String())
	switch {
	case err == nil:
		_ = c.Close()
		return Answered
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		return Answered
	case errors.Is(err, unix.EHOSTUNREACH):
		return Silence
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return Silence
	}
	return Unknown // this node lacks a route, a permission or a file descriptor
}

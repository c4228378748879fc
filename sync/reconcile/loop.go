package reconcile

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/vmapd/vmapd/model"
)

// Backend programs one node's dataplane.
type Backend interface {
	// Apply makes the dataplane match s. If it fails, the old state stays as far as
	// the dataplane is atomic, and the next Apply repairs the rest.
	Apply(ctx context.Context, s *model.Snapshot) error
	// Resync makes the next Apply read the dataplane before it compares.
	Resync()
}

// A Waiting error of a Backend says that it waits for something to pass, such as another process
// that still owns the rules. To look whether it has passed costs little, so the loop looks often.
type Waiting interface {
	error
	Waiting()
}

// Defaults of a Loop.
const (
	DefaultResyncInterval = time.Hour // as kube-proxy's full sync
	firstRetry            = 100 * time.Millisecond
	slowestRetry          = 30 * time.Second
	// slowestLook is the longest pause where the backend is waiting, see Waiting.
	slowestLook = time.Second
	// changeRetry is the pause between a failure and a round for a change, which may remove the cause of the failure.
	changeRetry = time.Second
	// repairInterval is the least time between two repairs. A program that changes the rules all the time can't take all
	// of the loop's time, and each of its changes is repaired within a second, as long as a repair takes but a moment.
	repairInterval = 300 * time.Millisecond
	// mostRest bounds the pauses between repairs in a row, which are as many times as long as a repair as there were
	// repairs before: another program that goes on takes at most a tenth of the loop's time.
	mostRest = 9
)

// Loop keeps a Backend in line with a State.
type Loop struct {
	State   *State
	Backend Backend
	Log     *slog.Logger
	// MinInterval is the least time between the end of one round and the beginning of the next that is for a change or a
	// retry. The default, 0, is right for a dataplane with short rounds.
	MinInterval time.Duration
	// ResyncInterval is the time between full comparisons with the dataplane, for changes
	// by other programs. 0 means DefaultResyncInterval.
	ResyncInterval time.Duration
	// ForeignChange receives when another program may have changed the dataplane. The loop
	// then compares it in full and repairs it, without waiting for MinInterval. nil: never.
	ForeignChange <-chan struct{}
	// Describe returns the text of a problem; nil means Problem.Error. A source of files adds the file and the line.
	Describe func(model.Problem) string
	// Observers are called with what happens.
	Observers []Observer
	// Before, unless it is nil, is called before a round takes its snapshot, and may wait. A simulation
	// waits until everything else is at rest: what a round has does not depend on chance then.
	Before func()

	full    bool // the next round compares with the real dataplane
	repair  bool // it puts back what another program changed
	started time.Time
	applied bool            // a snapshot was programmed, at least but for single service ports
	seen    *model.Snapshot // the last with logged problems
	backoff wait.Backoff

	failed LastError
}

// Run applies snapshots until ctx ends. The dataplane stays as it is then.
func (l *Loop) Run(ctx context.Context) {
	resync := time.NewTicker(cmp.Or(l.ResyncInterval, DefaultResyncInterval))
	defer resync.Stop()
	l.started = time.Now()
	l.full = true
	l.resetBackoff()
	// A channel is nil while the loop ignores it.
	changed, foreignChange := l.State.changed, l.ForeignChange
	var retry, rested, calm <-chan time.Time
	repairs := 0 // in a row, without a pause in which nothing was changed
	for {
		var began time.Time // of a repair; zero: it is none
		select {
		case <-ctx.Done():
			return
		case <-rested:
			changed = l.State.changed
			continue
		case <-calm:
			if foreignChange = l.ForeignChange; len(foreignChange) == 0 {
				repairs = 0
			}
			continue
		case <-changed:
		case <-retry:
			changed, rested = l.State.changed, nil
		case <-resync.C:
			l.full = true
			l.Backend.Resync()
		case <-foreignChange:
			began = time.Now()
			l.Log.Warn("another program changed our rules; restoring them")
			l.full, l.repair = true, true
			l.Backend.Resync()
		}
		if ctx.Err() != nil {
			return // chance had chosen among what was ready
		}
		if l.Before != nil {
			l.Before()
		}
		if snapshot, taken, ok := l.State.take(); ok {
			failed := l.round(ctx, snapshot, taken)
			pause := l.MinInterval
			changed, retry, rested = l.State.changed, nil, nil
			if failed > 0 {
				pause = max(pause, min(failed, changeRetry))
				retry = time.After(max(pause, failed))
			}
			if pause > 0 {
				changed = nil
			}
			if failed == 0 && pause > 0 || pause < failed { // otherwise the pause ends with the retry
				rested = time.After(pause)
			}
		}
		if !began.IsZero() {
			took := time.Since(began)
			foreignChange, calm = nil, time.After(max(repairInterval, took*time.Duration(min(repairs, mostRest))))
			repairs++
		}
	}
}

// round applies one snapshot. If that fails, it returns the time until the retry.
func (l *Loop) round(ctx context.Context, s *model.Snapshot, taken pending) time.Duration {
	l.logProblems(s)
	start := time.Now()
	err := l.Backend.Apply(ctx, s)
	if ctx.Err() != nil {
		return 0
	}
	done := Round{
		Snapshot: s, Started: start, Took: time.Since(start), Full: l.full, Repair: l.repair, Err: err,
		Services: taken.services, EndpointSlices: taken.endpointSlices, Triggers: taken.triggers,
	}
	done.Failed, done.Refused = failures(s, err)
	for _, o := range l.Observers {
		o.Done(done)
	}
	l.State.done()
	l.full, l.repair = err != nil, l.repair && err != nil
	if model.IsProgrammed(err) {
		l.logApplied(done)
	}
	if err != nil {
		again := l.backoff.Step()
		if _, waits := errors.AsType[Waiting](err); waits {
			again = min(again, slowestLook)
		}
		l.logFailure(err, again)
		return again
	}
	l.failed.Differs(nil)
	l.resetBackoff()
	return 0
}

// logApplied logs that a snapshot is programmed: the first one, or for debugging each with changed objects.
func (l *Loop) logApplied(done Round) {
	if l.applied {
		if done.Services+done.EndpointSlices > 0 {
			l.Log.Debug("changes applied", slog.Int("services", done.Services),
				slog.Int("endpointslices", done.EndpointSlices), slog.Duration("took", done.Took))
		}
		return
	}
	l.applied = true
	l.Log.Info("ready", slog.Duration("after", time.Since(l.started)),
		slog.Int("service_ports_ipv4", done.Snapshot.Family(model.IPv4).NumServicePorts()),
		slog.Int("service_ports_ipv6", done.Snapshot.Family(model.IPv6).NumServicePorts()))
}

// logFailure logs a failure of a round, unless it is that of the last one.
func (l *Loop) logFailure(err error, again time.Duration) {
	if !l.failed.Differs(err) {
		return
	}
	message := "sync failed; keeping the last rules"
	if model.IsProgrammed(err) {
		message = "the kernel refuses service ports; all others are programmed"
	}
	l.Log.Error(message, slog.Any("err", err), slog.Duration("retry_in", again))
}

func (l *Loop) resetBackoff() {
	const doublings = 16
	l.backoff = wait.Backoff{Duration: firstRetry, Factor: 2, Steps: doublings, Cap: slowestRetry}
}

// logProblems logs problems of objects that are new, and those that are gone.
func (l *Loop) logProblems(s *model.Snapshot) {
	added, gone := ProblemChanges(l.seen, s)
	l.seen = s
	describe := l.Describe
	if describe == nil {
		describe = model.Problem.Error
	}
	for _, p := range added {
		text := "ignoring invalid object (or field)"
		if p.Budget != "" {
			text = "object over its budget"
		}
		l.Log.Warn(text, slog.String("problem", describe(p)))
	}
	for _, p := range gone {
		l.Log.Info("no longer a problem", slog.String("problem", p.Error()))
	}
}

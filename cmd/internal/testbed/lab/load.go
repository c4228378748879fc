package lab

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Load makes connections at a fixed rate, whether or not earlier ones have
// been answered: a slow or lost one does not make the others wait.
type Load struct {
	Rate    int           // connections a second; positive
	Timeout time.Duration // of one connection; two seconds if zero

	// Ask makes one connection, usually by Namespace.Ask. Several run at once. Its context has the deadline. It does not
	// end with Run's context, so that a load that is ended counts no failures for that.
	Ask func(ctx context.Context) (Answer, error)
}

// Pause waits for some time, unless ctx ends meanwhile, which is the error.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Report is the result of a load.
type Report struct {
	Elapsed  time.Duration     // from the first connection to the last answer
	Sent     int               // connections made
	Answered map[string]int    // answers by pod
	Failed   map[Failure]int   // failures by kind
	First    map[Failure]error // the first error of each kind
	P99, Max time.Duration     // latency of those answered, connecting included
	LastLost time.Time         // when the last of those that failed began
	times    []time.Duration   // latencies
}

// outcome is the result of one connection.
type outcome struct {
	answer Answer
	err    error
	began  time.Time
	took   time.Duration
}

// Run makes connections until ctx ends, waits for the last answers and reports.
func (l Load) Run(ctx context.Context) Report {
	timeout := cmp.Or(l.Timeout, askTimeout)
	r := Report{Answered: map[string]int{}, Failed: map[Failure]int{}, First: map[Failure]error{}}
	interval := time.Second / time.Duration(l.Rate)

	start := time.Now()
	due := start
	timer := time.NewTimer(0)
	defer timer.Stop()
	outcomes := make(chan outcome)
	running := 0
	for end := ctx.Done(); end != nil || running > 0; {
		var tick <-chan time.Time // blocks once the load has ended
		if end != nil {
			tick = timer.C
		}
		select {
		case <-end:
			end = nil
		case <-tick:
			r.Sent++
			running++
			go func() { outcomes <- l.one(context.WithoutCancel(ctx), timeout) }()
			due = due.Add(interval)
			timer.Reset(time.Until(due)) // at once, if behind
		case o := <-outcomes:
			running--
			r.add(o)
		}
	}
	r.Elapsed = time.Since(start)
	slices.Sort(r.times)
	r.P99, r.Max = Percentile(r.times, 99), Percentile(r.times, 100)
	return r
}

// Start is Run until stop is called, which reports.
func (l Load) Start() (stop func() Report) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan Report, 1)
	go func() { done <- l.Run(ctx) }()
	return func() Report { cancel(); return <-done }
}

// one makes one connection.
func (l Load) one(ctx context.Context, timeout time.Duration) outcome {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	answer, err := l.Ask(ctx)
	return outcome{answer, err, start, time.Since(start)}
}

// add counts one outcome.
func (r *Report) add(o outcome) {
	if o.err != nil {
		kind := FailureOf(o.err)
		r.Failed[kind]++
		if o.began.After(r.LastLost) {
			r.LastLost = o.began
		}
		if r.First[kind] == nil {
			r.First[kind] = o.err
		}
		return
	}
	r.Answered[o.answer.Pod]++
	r.times = append(r.times, o.took)
}

// Percentile returns one of times, which are sorted; 0 if there are none.
func Percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

// Lost returns the number of connections that failed for any reason.
func (r *Report) Lost() int {
	n := 0
	for _, count := range r.Failed {
		n += count
	}
	return n
}

// Slower returns the number of connections with an answer after more than d.
func (r *Report) Slower(d time.Duration) int {
	i, _ := slices.BinarySearch(r.times, d+1)
	return len(r.times) - i
}

// String is two lines for people, the second about the pods, and one more for each kind of failure.
func (r *Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d connections in %v", r.Sent, r.Elapsed.Round(time.Millisecond))
	fmt.Fprintf(&s, ", %d failed; p99 %v, max %v", r.Lost(), r.P99.Round(time.Microsecond), r.Max.Round(time.Microsecond))
	for i, pod := range slices.Sorted(maps.Keys(r.Answered)) {
		fmt.Fprintf(&s, "%s%s %d", map[bool]string{true: "\n", false: ", "}[i == 0], pod, r.Answered[pod])
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Failed)) {
		fmt.Fprintf(&s, "\n%d %s, the first: %v", r.Failed[kind], kind, r.First[kind])
	}
	return s.String()
}

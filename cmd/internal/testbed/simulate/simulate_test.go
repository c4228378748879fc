package simulate

import (
	"bytes"
	"flag"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag   = flag.Uint64("seed", 1, "the first life's seed")
	stepsFlag  = flag.Int("steps", 2000, "of all lives together")
	lifeFlag   = flag.Int("life", 250, "steps of one life")
	shrinkFlag = flag.Bool("shrink", true, "look for a short life that fails, too")
)

// play plays a life.
func play(t *testing.T, l Life, trace io.Writer) (r Result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { r = l.Play(synctest.Wait, trace) })
	return r
}

// report prints a short life that fails, with all that happens in it.
func report(t *testing.T, l Life) {
	t.Helper()
	if *shrinkFlag {
		l = Shrink(l, func(l Life) bool { return play(t, l, io.Discard).Err != nil })
	}
	var trace bytes.Buffer
	r := play(t, l, &trace)
	var steps []string
	for _, s := range l.Steps {
		steps = append(steps, s.String())
	}
	t.Logf("%+v\n%s\n%s\n%v", l.Node, strings.Join(steps, " "), &trace, r.Err)
}

func TestSimulate(t *testing.T) {
	start, played, said := time.Now(), 0, time.Now()
	for seed := *seedFlag; played < *stepsFlag; seed++ {
		l := NewLife(seed, *lifeFlag)
		r := play(t, l, io.Discard)
		played += r.Steps
		if r.Err != nil {
			t.Errorf("seed %d, step %d: %v", seed, r.Steps, r.Err)
			report(t, l)
			t.FailNow()
		}
		if time.Since(said) > time.Minute {
			said = time.Now()
			t.Logf("%d steps, the last seed is %d, %.0f steps a second", played, seed, float64(played)/time.Since(start).Seconds())
		}
	}
	t.Logf("%d steps, %.0f a second", played, float64(played)/time.Since(start).Seconds())
}

// One seed is one life: all that happens is the same each time.
func TestOneSeedIsOneLife(t *testing.T) {
	for seed := range uint64(4) {
		l := NewLife(seed, *lifeFlag)
		var first, second bytes.Buffer
		a, b := play(t, l, &first), play(t, l, &second)
		if a.Trace != b.Trace {
			t.Errorf("seed %d: the traces differ, from here on:\n%s", seed, firstDifference(first.String(), second.String()))
		}
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return strings.Join(x[max(0, i-3):i+1], "\n") + "\n" + y[i]
		}
	}
	return "one goes on"
}

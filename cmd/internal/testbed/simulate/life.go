package simulate

import (
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
)

// Life is a node and what happens to it.
type Life struct {
	Node  Node
	Steps []Step
}

// NewLife makes the life of a seed. Its last step is that all faults end.
func NewLife(seed uint64, steps int) Life {
	r := rand.New(rand.NewPCG(seed, 0x6c_69_66_65))
	l := Life{Node: newNode(r)}
	for range steps - 1 {
		l.Steps = append(l.Steps, choose(r))
	}
	return l.settled()
}

func (l Life) settled() Life {
	l.Steps = append(slices.Clip(l.Steps), Step{Kind: Settle})
	return l
}

// Result is how a life went.
type Result struct {
	Err   error  // what does not hold; nil: everything does
	Steps int    // played
	Trace uint64 // a hash of all that happened
}

// Play plays a life in a bubble of testing/synctest, with its Wait. The trace has a line for all that happens.
func (l Life) Play(wait func(), trace io.Writer) Result {
	sum := fnv.New64a()
	w, err := newWorld(l.Node, wait, io.MultiWriter(sum, trace))
	if err != nil {
		return Result{Err: err}
	}
	defer w.end()
	n := 0
	for _, s := range l.Steps {
		w.play(s)
		n++
		if w.failed() != nil {
			break
		}
	}
	w.stop()
	return Result{w.failed(), n, sum.Sum64()}
}

package simulate

import "slices"

// Shrink returns a short life that fails, too: fails plays one. It leaves out ever smaller parts of the
// steps, as long as that makes a difference.
func Shrink(l Life, fails func(Life) bool) Life {
	steps := l.Steps[:len(l.Steps)-1] // the last one is that all faults end
	for size := len(steps) / 2; size > 0; {
		smaller := false
		for at := 0; at < len(steps); {
			rest := slices.Concat(steps[:at], steps[min(at+size, len(steps)):])
			if fails(Life{l.Node, rest}.settled()) {
				steps, smaller = rest, true
			} else {
				at += size
			}
		}
		if !smaller || size > 1 {
			size /= 2
		}
	}
	return Life{l.Node, steps}.settled()
}

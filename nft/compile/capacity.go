package compile

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// A capacity is the range of numbers of endpoints that a chain can choose from: lo to hi. With
// one chain for several numbers, a Service that grows or shrinks keeps its verdict. For a new
// verdict the kernel would validate all verdicts of the table again (nft_table_validate), and
// for a new chain that looks into the map of endpoints, walk the map (nf_tables_bind_set).
type capacity struct{ lo, hi int }

// capacityFor returns the capacity of the chain for n slots of a list: up to the next
// power of two. Only a random choice can be repeated when it finds an empty slot; the other
// algorithms need the exact number.
func capacityFor(n int, l model.TrafficPolicy, a model.Algorithm) capacity {
	switch {
	case a != model.Random || n == 0 && l == model.Local:
		return capacity{n, n}
	case n <= 2 && l == model.Local:
		return capacity{1, 2}
	case n <= 2:
		return capacity{0, 2}
	}
	return capacity{1<<(bits.Len(uint(n-1))-1) + 1, 1 << bits.Len(uint(n-1))}
}

func (c capacity) String() string {
	if c.lo == c.hi {
		return strconv.Itoa(c.hi)
	}
	return fmt.Sprintf("%d-to-%d", c.lo, c.hi)
}

// words is the capacity in a comment.
func (c capacity) words() string { return strings.ReplaceAll(c.String(), "-", " ") }

// maxDraws bounds the rules of a chain that chooses.
const maxDraws = 8

// draws returns the numbers of slots to draw from: first, and again after an empty slot. With
// n endpoints each draw from n slots or more is fair, and a draw from n always finds an
// endpoint. If a capacity has too many numbers for a draw each, the first draw is repeated,
// because most of the empty slots are met by it. Then no endpoint's share is off by more than
// a thousandth.
func (c capacity) draws() []int {
	var list []int
	lo := max(c.lo, 1)
	steps := c.hi - lo
	if steps >= maxDraws {
		list = []int{c.hi, c.hi}
		steps = maxDraws - 3
	}
	for i := range steps + 1 {
		list = append(list, c.hi-i*(c.hi-lo)/max(steps, 1))
	}
	return list
}

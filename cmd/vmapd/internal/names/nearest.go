package names

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// Instead says which names are most like a wrong one, if any is. What follows the last / is compared.
func Instead(name string, all []string) string {
	const few = 4
	name = path.Base(name)
	far := func(n string) int {
		n = path.Base(n)
		if strings.Contains(n, name) || strings.Contains(name, n) {
			return 1
		}
		return distance(name, n)
	}
	nearer := func(a, b string) int { return cmp.Or(cmp.Compare(far(a), far(b)), strings.Compare(a, b)) }
	all = slices.Compact(slices.SortedFunc(slices.Values(all), nearer))
	all = slices.DeleteFunc(all, func(n string) bool { return far(n) > max(2, len(name)/3) })
	if len(all) == 0 || name == "." {
		return ""
	}
	return "; did you mean " + strings.Join(all[:min(len(all), few)], " or ") + "?"
}

// distance is the number of single letters to insert, delete or replace to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

package names

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const fewNames = 4

// Instead says which names there are in place of a wrong one: those that are most like it or, if none is, a few. Of
// NAMESPACE/NAME, the name is compared.
func Instead(name string, all []string) string {
	slices.Sort(all)
	all = slices.Compact(all)
	distances := map[string]int{}
	var near []string
	for _, n := range all {
		bare := n[strings.LastIndexByte(n, '/')+1:]
		distances[n] = distance(name, bare)
		if strings.Contains(bare, name) || strings.Contains(name, bare) {
			distances[n] = min(distances[n], 1)
		}
		if distances[n] <= max(2, len(name)/3) {
			near = append(near, n)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return cmp.Compare(distances[a], distances[b]) })
	switch n := len(all); {
	case len(near) > 0 && name != "":
		return "; did you mean " + strings.Join(near[:min(len(near), fewNames)], " or ") + "?"
	case n == 0:
		return "; there is none"
	case n > fewNames:
		return fmt.Sprintf("; there are %s and %d more", strings.Join(all[:fewNames], ", "), n-fewNames)
	case n == 1:
		return "; there is only " + all[0]
	}
	return "; there are " + strings.Join(all, ", ")
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

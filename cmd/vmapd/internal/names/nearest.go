package names

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const fewNames = 4

// Nearest returns the few names that are most like one that does not exist.
func Nearest(name string, all []string) []string {
	type near struct {
		name     string
		distance int
	}
	var list []near
	for _, n := range all {
		d := distance(name, n)
		if strings.Contains(n, name) || strings.Contains(name, n) {
			d = min(d, 1)
		}
		if d <= max(2, len(name)/3) {
			list = append(list, near{n, d})
		}
	}
	slices.SortFunc(list, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	var out []string
	for _, n := range list {
		if len(out) < fewNames && !slices.Contains(out, n.name) {
			out = append(out, n.name)
		}
	}
	return out
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

// instead says which names there are in place of a wrong one.
func instead(name string, all []string) string {
	slices.Sort(all)
	all = slices.Compact(all)
	if near := Nearest(name, all); len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	switch n := len(all); {
	case n == 0:
		return "; there is none"
	case n > fewNames:
		return fmt.Sprintf("; there are %s and %d more", strings.Join(all[:fewNames], ", "), n-fewNames)
	case n == 1:
		return "; there is only " + all[0]
	}
	return "; there are " + strings.Join(all, ", ")
}

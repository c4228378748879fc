package model

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ObjectRef names an API object.
type ObjectRef struct {
	Kind string
	NamespacedName
}

func (r ObjectRef) String() string { return r.Kind + " " + r.NamespacedName.String() }

// Problem is a fault of one object. It affects at most that object: all others are programmed.
type Problem struct { //nolint:errname // a Problem is a value first: snapshots keep it, logs and events name it so
	Object  ObjectRef
	Field   string // path in the API object, like "spec.ports[0].port"
	Message string
	Budget  Budget // that the object exceeds; "" is another problem
}

// Error returns object, field and message in one line.
func (p Problem) Error() string {
	if p.Field == "" {
		return OneLine(p.Object.String() + ": " + p.Message)
	}
	return OneLine(p.Object.String() + ": " + p.Field + ": " + p.Message)
}

// OneLine escapes characters that break a line or confuse a terminal: without an API server, a name may have any.
func OneLine(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRune(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// problemList collects the problems of one object.
type problemList struct {
	object ObjectRef
	list   []Problem
	most   int // of problems to collect; 0: any number
	more   int // problems besides
}

func (p *problemList) add(field, format string, args ...any) {
	if p.most > 0 && len(p.list) >= p.most {
		p.more++
		return
	}
	p.list = append(p.list, Problem{Object: p.object, Field: field, Message: shorten(fmt.Sprintf(format, args...))})
}

// over adds a problem with a budget. There are few of them, so it always has room.
func (p *problemList) over(budget Budget, field, format string, args ...any) {
	p.list = append(p.list, Problem{p.object, field, fmt.Sprintf(format, args...), budget})
}

// capped returns the first problems, and one that has the number of the others.
func (p *problemList) capped(most int) []Problem {
	list, more := p.list, p.more
	slices.SortStableFunc(list, func(a, b Problem) int { return cmp.Compare(b.Budget, a.Budget) }) // budgets first
	if len(list) > most {
		more += len(list) - most
		list = list[:most:most]
	}
	if more > 0 {
		list = append(list, Problem{p.object, "", fmt.Sprintf("and %d more problems", more), ProblemsBudget})
	}
	return list
}

// maxMessage is the number of bytes of a message. An annotation may have 256 KiB.
const maxMessage = 500

func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

// parseAll parses the texts of a list, and adds a problem for each that is wrong. path is a format with the index.
func parseAll[T any](p *problemList, path string, list []string, parse func(string) (T, error)) []T {
	var all []T
	for i, text := range list {
		v, err := parse(text)
		if err != nil {
			p.add(fmt.Sprintf(path, i), "%v", err)
			continue
		}
		all = append(all, v)
	}
	return all
}

func compareProblems(a, b Problem) int {
	return cmp.Or(
		strings.Compare(a.Object.Kind, b.Object.Kind),
		compareNames(a.Object.NamespacedName, b.Object.NamespacedName),
		cmp.Compare(a.Budget, b.Budget),
		strings.Compare(a.Field, b.Field),
		strings.Compare(a.Message, b.Message),
	)
}

// FamilyError is an error of one IP family. The other family is not affected.
type FamilyError struct {
	Family Family
	// Ports are the only service ports that are not programmed, but as before, in whole or in part; nil: all are not.
	Ports map[ServicePortName]bool
	Err   error
}

func (e *FamilyError) Error() string { return e.Family.String() + ": " + e.Err.Error() }

// Unwrap returns the error without its family.
func (e *FamilyError) Unwrap() error { return e.Err }

// Failures returns what an error leaves unprogrammed: of each [FamilyError] in it, that family or its service ports; of
// any other error, both families.
func Failures(err error) (families [len(Families)]bool, ports [len(Families)]map[ServicePortName]bool) {
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // This walks the whole tree by itself.
		case nil:
			return
		case *FamilyError:
			if families[e.Family] = families[e.Family] || e.Ports == nil; e.Ports != nil {
				ports[e.Family] = e.Ports
			}
			return
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
			return
		case interface{ Unwrap() error }:
			if inner := e.Unwrap(); inner != nil {
				walk(inner)
				return
			}
		}
		families = [len(Families)]bool{IPv4: true, IPv6: true}
	}
	walk(err)
	return families, ports
}

// IsProgrammed reports whether a snapshot is programmed, at least but for single service ports, after an attempt
// that ended with an error, or nil.
func IsProgrammed(err error) bool {
	families, _ := Failures(err)
	return families == [len(Families)]bool{}
}

package main

import (
	"fmt"
	"io"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
)

// table prints results as Markdown, each as soon as it is there.
type table struct {
	out   io.Writer
	notes []fault
}

func (t *table) head(o *options) {
	fmt.Fprintf(t.out, "%s; rounds of each fault: %d; faults that take a while last %v.\n\n",
		bench.Machine(), o.rounds, o.lasts)
	fmt.Fprintln(t.out, "| fault | backend | new | lost | kept | broken | wrong | recovered within |")
	fmt.Fprintln(t.out, "|---|---|---|---|---|---|---|---|")
}

func (t *table) row(f fault, backend string, r *result) {
	fmt.Fprintf(t.out, "| %s | %s | %d | %d | %d | %d | %d | %.2f s |\n",
		f.name, backend, r.sent, r.lost, r.kept, r.broken, r.wrong, r.recovered.Round(10*time.Millisecond).Seconds())
	if n := len(t.notes); n == 0 || t.notes[n-1].name != f.name {
		t.notes = append(t.notes, f)
	}
}

// foot describes the faults that were played.
func (t *table) foot() {
	fmt.Fprintln(t.out)
	for _, f := range t.notes {
		fmt.Fprintf(t.out, "- **%s**: %s.", f.name, f.does)
		if f.loses != "" {
			fmt.Fprintf(t.out, " Losses are by design: %s.", f.loses)
		}
		fmt.Fprintln(t.out)
	}
}

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/vmapd/vmapd/model"
)

// Table is a table with kubectl's columns.
type Table struct {
	Title   string   // a line above it; "": none
	Columns []string // none: the first cell of each row is its title
	Rows    []Row
	Notes   []string // lines below the rows
}

// Row is a row of a table.
type Row struct {
	Cells []string
	Level Level // the colour of the last cell, which has a word for it
}

// Pair adds a row with a title and a text.
func (table *Table) Pair(title, text string, l Level) {
	table.Rows = append(table.Rows, Row{[]string{title, text}, l})
}

// Table adds a table. A last cell is as long as it is. An empty cell is <none>.
func (t *Text) Table(table Table) {
	if table.Title != "" {
		t.Say("%s", table.Title)
	}
	rows := table.Rows
	if len(table.Columns) > 0 && len(rows) > 0 {
		rows = append([]Row{{Cells: table.Columns}}, rows...)
	}
	w := tabwriter.NewWriter(&t.out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		cells := make([]string, len(r.Cells))
		for i, cell := range r.Cells {
			if cells[i] = model.OneLine(cell); cells[i] == "" && len(table.Columns) > 0 {
				cells[i] = "<none>"
			}
		}
		last := &cells[len(cells)-1]
		*last = t.colour(r.Level, *last)
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // to memory
	for _, n := range table.Notes {
		t.Say("%s", n)
	}
}

// since returns the rows that an earlier table has and this one has not, with a minus, and new ones with a plus. It has
// no header.
func (table Table) since(before Table) (changed Table) {
	add := func(sign string, rows, others []Row) {
		known := map[string]bool{}
		for _, r := range others {
			known[strings.Join(r.Cells, "\x00")] = true
		}
		for _, r := range rows {
			if !known[strings.Join(r.Cells, "\x00")] {
				cells := append([]string{sign + r.Cells[0]}, r.Cells[1:]...)
				changed.Rows = append(changed.Rows, Row{cells, r.Level})
			}
		}
	}
	add("- ", before.Rows, table.Rows)
	add("+ ", table.Rows, before.Rows)
	if !slices.Equal(table.Notes, before.Notes) {
		changed.Notes = table.Notes
	}
	if len(changed.Rows)+len(changed.Notes) > 0 {
		changed.Title = table.Title
	}
	return changed
}

// Watcher prints answers: the first one, and changes of further ones.
type Watcher struct {
	W      io.Writer
	Format Format

	tables []Table // of the last answer; nil: there was none
}

// Print prints an answer, for which tables stand as text.
func (w *Watcher) Print(value any, tables []Table) error {
	before := w.tables
	w.tables = tables
	return Print(w.W, w.Format, value, func(t *Text) {
		for i, table := range tables {
			switch at := slices.IndexFunc(before, func(b Table) bool { return b.Title == table.Title }); {
			case at >= 0:
				table = table.since(before[at])
			case i > 0 && before == nil:
				t.Say("")
			}
			t.Table(table)
		}
	})
}

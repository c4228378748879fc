package report

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

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
	// Level is the colour of the last cell, which has a word for it.
	Level Level
	// ID is what the row is about; "": the first cell. Key is what it says, without what changes with time alone; "":
	// all cells.
	ID, Key string
}

// Pair adds a row with a title and a text. What ID has is about the title.
func (table *Table) Pair(title, text string, r Row) {
	r.Cells, r.ID = []string{title, text}, title+r.ID
	table.Rows = append(table.Rows, r)
}

func (r Row) id() string { return cmp.Or(r.ID, r.Cells[0]) }

func (r Row) key() string { return cmp.Or(r.Key, strings.Join(r.Cells, "\x00")) }

func (table Table) gone(r Row) Row {
	cells := slices.Clone(r.Cells)
	last := &cells[len(cells)-1]
	if *last = "deleted"; len(table.Columns) == 0 {
		*last = "gone: " + r.Cells[len(cells)-1]
	}
	return Row{Cells: cells, Level: Warn}
}

// Table adds a table. A last cell is as long as it is, and wrapped if the table has no columns. An empty cell is
// <none>.
func (t *Text) Table(table Table) {
	const gap = 2
	if table.Title != "" {
		t.Say("%s", table.Title)
	}
	rows := table.Rows
	if len(table.Columns) > 0 && len(rows) > 0 {
		rows = append([]Row{{Cells: table.Columns}}, rows...)
	}
	widths := map[int]int{}
	lines := make([][]string, len(rows))
	for i, r := range rows {
		for column, cell := range r.Cells {
			if cell = model.OneLine(cell); cell == "" && len(table.Columns) > 0 {
				cell = "<none>"
			}
			lines[i] = append(lines[i], cell)
			widths[column] = max(widths[column], utf8.RuneCountInString(cell))
		}
	}
	for i, cells := range lines {
		before, last := "", cells[len(cells)-1]
		for column, cell := range cells[:len(cells)-1] {
			before += cell + strings.Repeat(" ", widths[column]-utf8.RuneCountInString(cell)+gap)
		}
		if len(table.Columns) == 0 {
			indent := strings.Repeat(" ", utf8.RuneCountInString(before))
			last = strings.TrimSpace(Wrap(last, indent, indent, t.columns))
		}
		t.out.WriteString(before + t.colour(rows[i].Level, last) + "\n")
	}
	for _, n := range table.Notes {
		t.Say("%s", n)
	}
}

// since returns what of a table an earlier one does not have, and rows that are gone. It has no header.
func (table Table) since(before Table) (changed Table) {
	had, have := map[string]bool{}, map[string]bool{}
	for _, r := range before.Rows {
		had[r.key()] = true
	}
	for _, r := range table.Rows {
		have[r.id()] = true
		if !had[r.key()] {
			changed.Rows = append(changed.Rows, r)
		}
	}
	for _, r := range before.Rows {
		if !have[r.id()] {
			changed.Rows = append(changed.Rows, before.gone(r))
		}
	}
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

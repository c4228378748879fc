package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/vmapd/vmapd/model"
)

// Table is an answer for people, with columns as kubectl's.
type Table struct {
	Columns []string // none: the first cell of each row is its title
	Rows    []Row
	Notes   []string // below the table
}

// Row is a row of a table.
type Row struct {
	Cells []string
	// Key is the content without what changes with time alone; "": all cells.
	Key string
}

// content returns the text by which two rows are the same.
func (r Row) content() string { return cmp.Or(r.Key, strings.Join(r.Cells, "\x00")) }

// Changed returns the table with the rows that another one does not have, and without its header.
func (t Table) Changed(before Table) Table {
	had := map[string]bool{}
	for _, r := range before.Rows {
		had[r.content()] = true
	}
	out := Table{}
	for _, r := range t.Rows {
		if !had[r.content()] {
			out.Rows = append(out.Rows, r)
		}
	}
	if !slices.Equal(t.Notes, before.Notes) {
		out.Notes = t.Notes
	}
	return out
}

// Write writes the table. Text of objects can't break a line or confuse a terminal.
func (t Table) Write(w io.Writer) error {
	const gap = 2
	columns := tabwriter.NewWriter(w, 0, 0, gap, ' ', 0)
	line := func(cells []string) {
		words := make([]string, len(cells))
		for i, c := range cells {
			words[i] = cmp.Or(model.OneLine(c), "-")
		}
		fmt.Fprintln(columns, strings.Join(words, "\t"))
	}
	if len(t.Columns) > 0 {
		line(t.Columns)
	}
	for _, r := range t.Rows {
		line(r.Cells)
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	for _, n := range t.Notes {
		if _, err := fmt.Fprintln(w, model.OneLine(n)); err != nil {
			return err
		}
	}
	return nil
}

// age is the time since t, as kubectl's; "" for the zero time.
func age(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
}

func (p PortID) cells() []string {
	port := p.Protocol
	if p.Port > 0 {
		port = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}
	return []string{p.Namespace, p.Name, port}
}

func sentence(s State, reason string) string {
	if reason == "" {
		return string(s)
	}
	return string(s) + ": " + reason
}

// Table has a row for each service port.
func (s Services) Table(wide bool, now time.Time) Table {
	counted := slices.ContainsFunc(s.Items, func(i Service) bool { return i.Connections != nil })
	t := Table{Columns: []string{"NAMESPACE", "NAME", "PORT", "CLUSTER-IP", "ENDPOINTS"}}
	if wide {
		t.Columns = append(t.Columns, "HERE", "PORT-NAME", "NODE-PORT", "ADDRESSES")
	}
	if counted {
		t.Columns = append(t.Columns, "CONNECTIONS")
	}
	t.Columns = append(t.Columns, "SINCE", "STATE")
	for _, i := range s.Items {
		r := Row{Cells: append(i.cells(), i.clusterIP(), strconv.Itoa(i.Endpoints))}
		if wide {
			r.Cells = append(r.Cells, strconv.Itoa(i.OnThisNode), i.PortName, unlessZero(int(i.NodePort)), some(i.Addresses))
		}
		if counted {
			r.Cells = append(r.Cells, number(i.Connections))
		}
		state := sentence(i.State, i.Reason)
		if i.Problems > 0 && i.State != LeftOut {
			state += "; " + plural(i.Problems, "problem")
		}
		r.Key = strings.Join(append(r.Cells, state), "\x00")
		r.Cells = append(r.Cells, age(i.Since, now), state)
		t.Rows = append(t.Rows, r)
		t.Notes = append(t.Notes, i.Details.notes()...)
	}
	return t
}

func (s Service) clusterIP() string {
	if !s.ClusterIP.IsValid() {
		return ""
	}
	return s.ClusterIP.String()
}

// notes are the lines below a table about one Service.
func (d *Details) notes() (lines []string) {
	if d == nil {
		return nil
	}
	for _, p := range d.ProblemsInDetail {
		lines = append(lines, "problem: "+p.String())
	}
	return lines
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// some returns the first elements of a list, and the number of others.
func some[T fmt.Stringer](list []T) string {
	const most = 3
	var words []string
	for _, e := range list[:min(most, len(list))] {
		words = append(words, e.String())
	}
	text := strings.Join(words, ",")
	if more := len(list) - most; more > 0 {
		text += fmt.Sprintf(" + %d more", more)
	}
	return text
}

func unlessZero(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func number[T ~int | ~uint64](n *T) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// Table has a row for each service port or, if one Service was asked for, for each endpoint.
func (e Endpoints) Table(wide bool, _ time.Time) Table {
	t := Table{Columns: []string{"NAMESPACE", "NAME", "PORT", "ENDPOINTS"}}
	if e.Complete {
		t.Columns = []string{"NAMESPACE", "NAME", "PORT", "ENDPOINT", "SHARE", "LOCAL-SHARE", "HERE", "STATE"}
	} else if wide {
		t.Columns = append(t.Columns, "NUMBER", "STATE")
	}
	for _, i := range e.Items {
		switch {
		case e.Complete && i.Number == 0:
			t.Rows = append(t.Rows, Row{Cells: append(i.cells(), "", "", "", "", sentence(i.State, i.Reason))})
		case e.Complete:
			for _, one := range i.Endpoints {
				t.Rows = append(t.Rows, Row{Cells: append(i.cells(), one.cells()...)})
			}
		default:
			r := Row{Cells: append(i.cells(), i.list())}
			if wide {
				r.Cells = append(r.Cells, strconv.Itoa(i.Number), sentence(i.State, i.Reason))
			}
			t.Rows = append(t.Rows, r)
		}
	}
	return t
}

func (i PortEndpoints) list() string {
	var words []string
	for _, e := range i.Endpoints {
		words = append(words, e.Address.String())
	}
	text := cmp.Or(strings.Join(words, ","), "<none>")
	if more := i.Number - len(i.Endpoints); more > 0 {
		text += fmt.Sprintf(" + %d more", more)
	}
	return text
}

func (e Endpoint) cells() []string {
	here, state := "no", "serving"
	if e.OnThisNode {
		here = "yes"
	}
	if e.Draining {
		here, state = "", "draining: old connections only"
	}
	return []string{e.Address.String(), percent(e.Share), percent(e.LocalShare), here, state}
}

func percent(share float64) string {
	if share == 0 {
		return ""
	}
	return strconv.FormatFloat(100*share, 'f', 1, 64) + "%"
}

// Table has a row for each service port and, if one Service was asked for, for each endpoint.
func (c Connections) Table(bool, time.Time) Table {
	detailed := slices.ContainsFunc(c.Items, func(i Connection) bool { return len(i.Endpoints) > 0 })
	t := Table{Columns: []string{"NAMESPACE", "NAME", "PORT", "FAMILY", "NEW", "TRACKED"}}
	if detailed {
		t.Columns = append(t.Columns, "ENDPOINT")
	}
	for _, i := range c.Items {
		r := Row{Cells: append(i.cells(), i.Family, number(i.New), number(i.Tracked))}
		if detailed {
			r.Cells = append(r.Cells, "all")
		}
		t.Rows = append(t.Rows, r)
		for _, e := range i.Endpoints {
			state := e.Endpoint.String()
			if e.Gone {
				state += " (gone)"
			}
			t.Rows = append(t.Rows, Row{Cells: append(i.cells(), i.Family, "", strconv.Itoa(e.Tracked), state)})
		}
	}
	if c.Note != "" {
		t.Notes = []string{c.Note}
	}
	return t
}

package status

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// Tables describes the Service, as kubectl describe does.
func (o *One) Tables(now time.Time) []report.Table {
	tables := []report.Table{o.summary(now), o.addresses(), o.endpoints()}
	for i := range o.Ports {
		p := &o.Ports[i]
		if len(p.Rules) == 0 {
			continue
		}
		tables = append(tables, report.Table{Title: fmt.Sprintf("Rules of %s %s:", p.Family, p.port()), Notes: p.Rules})
	}
	return tables
}

func (o *One) summary(now time.Time) report.Table {
	var t report.Table
	row := func(l report.Level, title, text string) {
		t.Rows = append(t.Rows, report.Row{Cells: []string{title, text}, Level: l, ID: title + text})
	}
	row("", "Service", o.Namespace+"/"+o.Name)
	for _, p := range o.Problems {
		row(report.Warn, "Problem", p)
	}
	for i := range o.Ports {
		p := &o.Ports[i]
		title := fmt.Sprintf("%s %s", p.Family, p.port())
		t.Rows = append(t.Rows, report.Row{
			Cells: []string{title, p.sentence() + p.age(now)}, Level: p.level(), ID: title + p.PortName, Key: title + p.sentence(),
		})
		for _, setting := range p.Settings {
			row("", "", setting)
		}
		if p.Connections != nil {
			t.Rows = append(t.Rows, report.Row{
				Cells: []string{"Connections", fmt.Sprintf("%d new ones since counting began", *p.Connections)}, ID: title + p.PortName + " connections",
			})
		}
	}
	t.Notes = o.Notes
	return t
}

func (p *Port) age(now time.Time) string {
	if p.Since.IsZero() {
		return ""
	}
	return " (since " + report.Age(p.Since, now) + ")"
}

func (o *One) addresses() report.Table {
	t := report.Table{Title: "Addresses:", Columns: []string{"KIND", "ADDRESS", "POLICY", "STATE"}}
	for i := range o.Ports {
		for _, a := range o.Ports[i].Addresses {
			address := fmt.Sprintf("*:%d", a.Port)
			if a.Address.IsValid() {
				address = netip.AddrPortFrom(a.Address, a.Port).String()
			}
			r := report.Row{Cells: []string{a.Kind, address + "/" + o.Ports[i].Protocol, a.TrafficPolicy, string(a.State)}, Level: report.Fail}
			if a.State == report.Forwarded {
				r.Level = report.OK
			}
			r.ID = strings.Join(append(r.Cells[:3:3], o.Ports[i].Family), " ")
			t.Rows = append(t.Rows, r)
		}
	}
	return t
}

func (o *One) endpoints() report.Table {
	t := report.Table{Title: "Endpoints:", Columns: []string{"ENDPOINT", "POD", "NODE", "ZONE", "SHARE", "LOCAL-SHARE", "TRACKED", "STATE"}}
	var rows, more int
	for i := range o.Ports {
		p := &o.Ports[i]
		more += p.More
		for _, e := range p.Backends {
			node := e.Node
			if e.OnThisNode {
				node = strings.TrimSpace(node + " (this node)")
			}
			r := report.Row{Level: report.Warn, ID: e.Address.String() + p.Protocol + p.PortName}
			if e.State == "serving" {
				r.Level = report.OK
			}
			r.Cells = []string{
				e.Address.String() + "/" + p.Protocol, e.Pod, node, e.Zone, percent(e.Share), percent(e.LocalShare), number(e.Tracked), e.State,
			}
			r.Key = strings.Join(slices.Delete(slices.Clone(r.Cells), 6, 7), "\x00") // without TRACKED
			t.Rows = append(t.Rows, r)
			rows++
		}
	}
	switch {
	case more > 0:
		t.Notes = []string{fmt.Sprintf("and %d more", more)}
	case rows == 0:
		t.Notes = []string{"none"}
	}
	return t
}

func percent(share float64) string {
	if share == 0 {
		return ""
	}
	return strconv.FormatFloat(100*share, 'f', 1, 64) + "%"
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

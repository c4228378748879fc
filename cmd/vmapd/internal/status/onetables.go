package status

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// Tables describes the Service, as kubectl describe does.
func (o *One) Tables(now time.Time) []report.Table {
	tables := []report.Table{o.summary(now), o.addresses(), o.endpoints()}
	for _, p := range o.Ports {
		if len(p.Rules) > 0 {
			title := fmt.Sprintf("Rules of %s %s:", p.Family, p.port())
			tables = append(tables, report.Table{Title: title, Notes: p.Rules})
		}
	}
	return tables
}

func (o *One) summary(now time.Time) report.Table {
	t := report.Table{Notes: o.Notes}
	row := func(title, text string, r report.Row) {
		r.Cells = []string{title, text}
		t.Rows = append(t.Rows, r)
	}
	row("Service", o.Namespace+"/"+o.Name, report.Row{})
	for _, p := range o.Problems {
		row("Problem", p, report.Row{Level: report.Warn, ID: "Problem" + p})
	}
	for _, p := range o.Ports {
		title, text, age := p.Family+" "+p.port(), p.sentence(), ""
		if !p.Since.IsZero() {
			age = " (since " + report.Age(p.Since, now) + ")"
		}
		row(title, text+age, report.Row{Level: p.level(), ID: title + p.PortName, Key: title + text})
		for _, setting := range p.Settings {
			row("", setting, report.Row{ID: setting})
		}
		if p.Connections != nil {
			text := fmt.Sprintf("%d new ones since counting began", *p.Connections)
			row("Connections", text, report.Row{ID: title + p.PortName + " connections"})
		}
	}
	return t
}

func (o *One) addresses() report.Table {
	t := report.Table{Title: "Addresses:", Columns: []string{"KIND", "ADDRESS", "POLICY", "STATE"}}
	for _, p := range o.Ports {
		for _, a := range p.Addresses {
			address := fmt.Sprintf("*:%d", a.Port)
			if a.Address.IsValid() {
				address = netip.AddrPortFrom(a.Address, a.Port).String()
			}
			cells := []string{a.Kind, address + "/" + p.Protocol, a.TrafficPolicy, string(a.State)}
			r := report.Row{Cells: cells, Level: report.Fail, ID: fmt.Sprint(cells[:3], p.Family)}
			if a.State == report.Forwarded {
				r.Level = report.OK
			}
			t.Rows = append(t.Rows, r)
		}
	}
	return t
}

func (o *One) endpoints() report.Table {
	t := report.Table{Title: "Endpoints:"}
	t.Columns = []string{"ENDPOINT", "POD", "NODE", "ZONE", "SHARE", "LOCAL-SHARE", "TRACKED", "STATE"}
	more := 0
	for _, p := range o.Ports {
		more += p.More
		for _, e := range p.Backends {
			node, tracked, level := e.Node, "", report.Warn
			if e.OnThisNode {
				node = strings.TrimSpace(node + " (this node)")
			}
			if e.Tracked != nil {
				tracked = strconv.Itoa(*e.Tracked)
			}
			if e.State == "serving" {
				level = report.OK
			}
			cells := []string{
				e.Address.String() + "/" + p.Protocol, e.Pod, node, e.Zone, percent(e.Share), percent(e.LocalShare), "", e.State,
			}
			key := strings.Join(cells, "\x00")
			cells[6] = tracked
			t.Rows = append(t.Rows, report.Row{Cells: cells, Level: level, ID: cells[0] + p.PortName, Key: key})
		}
	}
	switch {
	case more > 0:
		t.Notes = []string{fmt.Sprintf("and %d more", more)}
	case len(t.Rows) == 0:
		t.Notes = []string{"none"}
	}
	return t
}

func percent(share float64) string {
	if share == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}

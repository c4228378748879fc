package status

import (
	"fmt"

	"github.com/vmapd/vmapd/model"
)

// One is the answer about one Service for a page, which asks often: large Services are cut.
type One struct {
	Services      Services  `json:"services"`
	Endpoints     Endpoints `json:"endpoints"`
	MoreEndpoints int       `json:"moreEndpoints,omitempty"`
	Ways          []Way     `json:"ways,omitempty"`
	// Uncounted is the reason for which connections are not counted.
	Uncounted string `json:"uncounted,omitempty"`
}

// Way is the way of a packet to one service port.
type Way struct {
	PortID
	Stages []Stage `json:"stages"`
}

// Stage is a part of the rules on a packet's way.
type Stage struct {
	Kind    string   `json:"kind"` // map or chain; frontends or endpoints
	Name    string   `json:"name"`
	Comment string   `json:"comment,omitempty"`
	Lines   []string `json:"lines,omitempty"`
	More    int      `json:"more,omitempty"` // lines
}

// Limits of an answer about one Service.
const (
	onesPorts     = 12
	onesEndpoints = 50
	// OnesLines is the number of lines of a stage.
	OnesLines = 12
)

// OnesPorts returns the service ports that an answer about one Service has.
func (v *View) OnesPorts(filter Filter) []*model.ServicePort {
	ports := v.Ports(filter)
	return ports[:min(onesPorts, len(ports))]
}

// One returns the answer about the Service that a filter names. way returns the rules of the dataplane, or none.
func (v *View) One(filter Filter, counts Counts, way func(*model.ServicePort) []Stage) One {
	out := One{Services: v.Services(filter, onesPorts, counts)}
	out.Endpoints.Items = []PortEndpoints{}
	for _, sp := range v.OnesPorts(filter) {
		s := v.service(sp)
		item := PortEndpoints{PortID: s.PortID, State: s.State, Reason: s.Reason, Number: len(sp.Endpoints) + len(sp.Draining)}
		item.Endpoints = endpoints(sp, min(onesEndpoints, item.Number))
		out.MoreEndpoints += item.Number - len(item.Endpoints)
		out.Endpoints.Items = append(out.Endpoints.Items, item)
		stages := way(sp)
		if len(stages) == 0 {
			stages = outline(sp)
		}
		out.Ways = append(out.Ways, Way{s.PortID, stages})
	}
	return out
}

// outline is a way without the dataplane's rules.
func outline(sp *model.ServicePort) []Stage {
	from := Stage{Kind: "frontends", Name: "of " + sp.Name.String()}
	for _, fe := range sp.Frontends {
		line := fmt.Sprintf("%v %v: %v", fe.Kind, fe.VIP, fe.Action)
		if fe.TrafficPolicy == model.Local {
			line += " to endpoints on this node"
		}
		from.add(line)
	}
	to := Stage{Kind: "endpoints", Name: "one of them, " + sp.Algorithm.String()}
	for _, e := range sp.Endpoints {
		line := e.Addr.String()
		if e.Local {
			line += ", on this node"
		}
		to.add(line)
	}
	return []Stage{from, to}
}

func (s *Stage) add(line string) {
	if len(s.Lines) >= OnesLines {
		s.More++
		return
	}
	s.Lines = append(s.Lines, line)
}

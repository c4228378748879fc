package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/model"
)

// Report is the result.
type Report struct {
	Node    string `json:"node"`
	Mode    string `json:"mode"`              // of kube-proxy
	Version string `json:"version,omitempty"` // of kube-proxy, if it is known
	Backend string `json:"backend"`           // of vmapd
	// Services is the number of Services that a proxy serves.
	Services int `json:"services"`
	// Differences change connections that are answered before or after the switch. Notes do not.
	Differences []Difference `json:"differences"`
	Notes       []Difference `json:"notes"`
	// NotConcerned is the number of known differences of this mode and backend that concern no Service here.
	NotConcerned int `json:"notConcerned"`
	// Configuration is what vmapd says about the configuration.
	Configuration []string `json:"configuration"`
}

// Difference is a known difference that applies.
type Difference struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Change  string   `json:"change"`
	Details []string `json:"details,omitempty"`
	// Services are those that it concerns; empty: it concerns the node as a whole.
	Services []string `json:"services,omitempty"`
	Remedy   string   `json:"remedy,omitempty"`
	// Setting keeps everything as it was, if there is one.
	Setting *Setting `json:"setting,omitempty"`
}

// Setting is a part of a configuration file.
type Setting struct {
	File string `json:"file"`
	YAML string `json:"yaml"`
}

// Differs reports whether something changes.
func (r *Report) Differs() bool { return len(r.Differences) > 0 }

// comparison is what the rows of the table look at.
type comparison struct {
	Input
	snapshot *model.Snapshot
	served   []names.ServiceObject             // by a proxy
	hinted   map[model.NamespacedName]bool     // Services with hints for nodes
	problems map[model.NamespacedName][]string // of Services, but for addresses in a ServiceCIDR
}

func newComparison(in Input) *comparison {
	c := &comparison{
		in, in.Objects.Builder(in.Config).Snapshot(), in.served(),
		map[model.NamespacedName]bool{},
		map[model.NamespacedName][]string{},
	}
	for _, s := range in.Objects.Slices {
		if slices.ContainsFunc(s.Endpoints, func(e model.SliceEndpoint) bool { return len(e.HintNodes) > 0 }) {
			c.hinted[model.NamespacedName{Namespace: s.Namespace, Name: s.Labels[model.LabelServiceName]}] = true
		}
	}
	for _, p := range c.snapshot.Problems() {
		if p.Object.Kind == "Service" && !strings.Contains(p.Message, "it is in a ServiceCIDR") {
			c.problems[p.Object.NamespacedName] = append(c.problems[p.Object.NamespacedName], p.Error())
		}
	}
	return c
}

// Compare lists the known differences that apply.
func Compare(in Input) *Report {
	c := newComparison(in)
	r := &Report{
		Node: in.Config.NodeName, Mode: in.mode(), Backend: in.Backend, Services: len(c.served),
		Configuration: append([]string{}, in.Notes...),
	}
	if in.Version > 0 {
		r.Version = fmt.Sprintf("1.%d", in.Version)
	}
	r.Differences = c.apply(differences(), &r.NotConcerned)
	r.Notes = c.apply(notes(), &r.NotConcerned)
	return r
}

// apply returns the differences of the rows that apply, and counts those that concern no Service.
func (c *comparison) apply(rows []row, notConcerned *int) []Difference {
	list := []Difference{}
	for _, r := range rows {
		if !r.applies(c) {
			continue
		}
		d := Difference{ID: r.id, Title: r.title, Change: r.change, Remedy: r.remedy}
		for i := range c.served {
			if r.concerns != nil && r.concerns(c, &c.served[i].Service) {
				d.Services = append(d.Services, c.served[i].String())
			}
		}
		if r.concerns != nil && len(d.Services) == 0 {
			*notConcerned++
			continue
		}
		slices.Sort(d.Services)
		if r.own != "" {
			d.Setting = &Setting{c.OwnFile, r.own}
		}
		if r.edit != nil {
			r.edit(c, &d)
		}
		list = append(list, d)
	}
	return list
}

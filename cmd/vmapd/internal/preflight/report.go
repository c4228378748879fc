// Package preflight lists what changes on a node when vmapd replaces kube-proxy.
//
//	kube-proxy's configuration, mode, version ──┐
//	vmapd's configuration and backend ──────────┼── table of known differences ──> Report
//	Services, EndpointSlices, the node ─────────┘
//
// Each row of the table is a difference that is known for a mode and a backend, with the Services that it concerns and
// the setting that keeps the former behaviour. It is pure: rules that a kube-proxy has in the kernel are not examined.
package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// Input is everything that the differences depend on.
type Input struct {
	*config.Config // with kube-proxy's
	// Version is kube-proxy's minor version, 36 for 1.36; 0: it is not known.
	Version int
	Node    string // its name
	// ProxyFile and OwnFile name the files of kube-proxy's settings and of vmapd's own.
	ProxyFile, OwnFile string

	// Objects are those of the cluster.
	Objects *names.Directory
}

// Modes of kube-proxy and backends of vmapd.
const (
	nftables  = "nftables"
	iptables  = "iptables"
	ipvs      = "ipvs"
	userspace = "userspace"
)

// nftablesDefault is the first minor version in which an empty mode is nftables (KEP-5343).
const nftablesDefault = 40

// mode is the mode in which kube-proxy runs.
func (in *Input) mode() string {
	switch {
	case in.KubeProxy.Mode != "":
		return string(in.KubeProxy.Mode)
	case in.Version >= nftablesDefault:
		return nftables
	}
	return iptables
}

// nodePortSetting makes node ports answer where kube-proxy's do, in words that all versions know.
func (in *Input) nodePortSetting() *Setting {
	list := slices.Clone(in.KubeProxy.NodePortAddresses)
	if len(list) == 0 {
		list = []string{"0.0.0.0/0", "::/0"}
	}
	if in.loopback() {
		list = append(list, "127.0.0.0/8")
	}
	return &Setting{in.ProxyFile, `nodePortAddresses: ["` + strings.Join(list, `", "`) + `"]`}
}

// loopback reports whether kube-proxy's node ports answer on 127.0.0.1.
func (in *Input) loopback() bool {
	if in.mode() != iptables || !*in.KubeProxy.IPTables.LocalhostNodePorts {
		return false
	}
	n, err := config.ParseNodePortAddresses(in.KubeProxy.NodePortAddresses)
	return err == nil && (len(in.KubeProxy.NodePortAddresses) == 0 || config.OnLoopback(n))
}

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

// comparison is what the rows of the table look at.
type comparison struct {
	Input
	traffic  model.Config
	backend  string // that vmapd chooses: nftables, iptables, ipvs or userspace
	snapshot *model.Snapshot
	served   []names.ServiceObject             // by a proxy
	hinted   map[model.NamespacedName]bool     // Services with hints for nodes
	problems map[model.NamespacedName][]string // of Services, with addresses in a ServiceCIDR allowed
}

func newComparison(in Input) *comparison {
	served := in.Model()
	served.NodeName = in.Node
	served.ExternalAddresses.InServiceCIDRs = true // these addresses are a difference of their own
	c := &comparison{
		Input: in, traffic: in.Model(), backend: string(in.Backend), snapshot: in.Objects.Builder(served).Snapshot(),
		hinted: map[model.NamespacedName]bool{}, problems: map[model.NamespacedName][]string{},
	}
	if in.Backend == config.Auto {
		c.backend = nftables
	}
	for _, s := range in.Objects.Services {
		_, other := s.Labels[model.LabelServiceProxyName]
		hasIP := len(s.ClusterIPs) > 0 && s.ClusterIPs[0] != "" && s.ClusterIPs[0] != "None"
		if !other && s.Type != "ExternalName" && hasIP {
			c.served = append(c.served, s)
		}
	}
	for _, s := range in.Objects.Slices {
		if slices.ContainsFunc(s.Endpoints, func(e model.SliceEndpoint) bool { return len(e.HintNodes) > 0 }) {
			c.hinted[model.NamespacedName{Namespace: s.Namespace, Name: s.Labels[model.LabelServiceName]}] = true
		}
	}
	for _, p := range c.snapshot.Problems {
		if p.Object.Kind == "Service" {
			c.problems[p.Object.NamespacedName] = append(c.problems[p.Object.NamespacedName], p.Error())
		}
	}
	return c
}

// Compare lists the known differences that apply.
func Compare(in Input) *Report {
	c := newComparison(in)
	r := &Report{
		Node: in.Node, Mode: in.mode(), Backend: c.backend, Services: len(c.served), Configuration: []string{},
	}
	for _, n := range in.Notes {
		r.Configuration = append(r.Configuration, n.Text)
	}
	if in.Version > 0 {
		r.Version = fmt.Sprintf("1.%d", in.Version)
	}
	r.Differences, r.Notes = c.apply(differences), c.apply(notes)
	return r
}

// apply returns the differences of the rows that apply.
func (c *comparison) apply(rows []row) []Difference {
	list := []Difference{}
	for _, r := range rows {
		if r.from != nil && !slices.Contains(r.from, c.mode()) || r.to != nil && !slices.Contains(r.to, c.backend) ||
			r.when != nil && !r.when(c) {
			continue
		}
		d := Difference{ID: r.id, Title: r.title, Change: r.change, Remedy: r.remedy}
		for i := range c.served {
			if r.concerns != nil && r.concerns(c, &c.served[i].Service) {
				d.Services = append(d.Services, c.served[i].String())
			}
		}
		if r.concerns != nil && len(d.Services) == 0 {
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

// Write writes the report for people.
func (r *Report) Write(t *report.Text) {
	t.Wrap(fmt.Sprintf("Node %s, %s: from %s, mode %s, to vmapd with the backend %s.", r.Node,
		report.Plural(r.Services, "Service"), strings.TrimSpace("kube-proxy "+r.Version), r.Mode, r.Backend), "", "")
	for i, d := range r.Differences {
		d.write(t, report.Warn, fmt.Sprintf("%d. ", i+1))
	}
	if len(r.Notes) > 0 {
		t.Say("")
		t.Say("Notes: new connections are answered as before.")
	}
	for _, d := range r.Notes {
		d.write(t, "", "-  ")
	}
	if len(r.Configuration) > 0 {
		t.Say("")
		t.Say("Configuration:")
	}
	for _, note := range r.Configuration {
		t.Wrap(note, "-  ", "   ")
	}
	level, total := report.OK, "nothing changes"
	if len(r.Differences) > 0 {
		level, total = report.Warn, report.Plural(len(r.Differences), "difference")
	}
	t.Say("")
	t.Verdict(level, "%s, %s", total, report.Plural(len(r.Notes), "note"))
}

// most is how many Services and details are shown.
const most = 5

func (d Difference) write(t *report.Text, l report.Level, head string) {
	indent := strings.Repeat(" ", len(head))
	t.Say("")
	t.Paragraph(l, d.Title, head, indent)
	t.Wrap(d.Change, indent, indent)
	for _, detail := range report.First(d.Details, most) {
		t.Wrap(detail, indent+"- ", indent+"  ")
	}
	if len(d.Services) > 0 {
		t.Wrap(report.Plural(len(d.Services), "Service")+": "+report.List(d.Services, most), indent, indent)
	}
	if d.Remedy != "" {
		t.Wrap(d.Remedy, indent+"-> ", indent+"   ")
	}
	if d.Setting != nil {
		t.Say("%sTo keep it as it was, in %s:", indent, d.Setting.File)
		t.Say("%s  %s", indent, d.Setting.YAML)
	}
}

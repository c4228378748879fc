package preflight

import (
	"fmt"
	"slices"
)

// Report is the result.
type Report struct {
	Node      string    `json:"node"`
	KubeProxy KubeProxy `json:"kubeProxy"`
	// Backend is the one with which vmapd would run.
	Backend string `json:"backend"`
	// Connections is the number of connections that were tried, Services that of their Services.
	Connections int `json:"connections"`
	Services    int `json:"services"`
	// NotCompared is the reason why no connection was, a sentence without its full stop. It is empty if they were.
	NotCompared string `json:"notCompared,omitempty"`
	// Differences concern connections that succeed or fail otherwise, or arrive from another
	// address. Notes concern connections that no Service answers before or after, and
	// programs that look for kube-proxy's rules.
	Differences []Difference `json:"differences"`
	Notes       []Difference `json:"notes"`
	// Stale is where kube-proxy's rules have not followed the cluster.
	Stale []Stale `json:"stale"`
	// Settings are sentences about the configuration.
	Settings []string `json:"settings"`
	// Unread are parts of kube-proxy's rules that were not understood: connections that meet
	// them could not be compared.
	Unread []string `json:"unread"`
}

// KubeProxy describes the proxy whose rules were read.
type KubeProxy struct {
	Mode     string   `json:"mode"`
	Families []string `json:"families"`
}

// Difference is one difference, of one or more Services.
type Difference struct {
	ID     string `json:"id"`
	What   string `json:"what"`
	Remedy string `json:"remedy,omitempty"`
	// Keep is the setting that keeps everything as it was, if there is one.
	Keep string `json:"keep,omitempty"`
	// Services, Clients and Addresses say whom it concerns, sorted. They may be empty.
	Services  []string `json:"services,omitempty"`
	Clients   []Client `json:"clients,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// Rules are rules of others that it concerns.
	Rules []string `json:"rules,omitempty"`
	// Example is one of the connections, with its two results.
	Example *Example `json:"example,omitempty"`
}

// Example is a connection with its results.
type Example struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Stale is a part of kube-proxy's rules that differs from the cluster.
type Stale struct {
	Service string `json:"service"`
	What    string `json:"what"`
}

// Client is a kind of client.
type Client string

// The kinds of clients.
const (
	LocalPod Client = "pods of this node"
	OtherPod Client = "pods of other nodes"
	ThisNode Client = "this node"
	Outside  Client = "clients outside"
)

// Differs reports whether something would be different.
func (r *Report) Differs() bool { return len(r.Differences) > 0 }

// Confirming returns r with those of its differences that an earlier report has, too. The others were
// a matter of a moment.
func (r *Report) Confirming(earlier *Report) *Report {
	c := *r
	c.Differences = slices.DeleteFunc(slices.Clone(r.Differences), func(d Difference) bool {
		return !slices.ContainsFunc(earlier.Differences, func(o Difference) bool { return o.ID == d.ID && o.What == d.What })
	})
	gone := len(r.Differences) - len(c.Differences)
	for _, o := range earlier.Differences {
		if !slices.ContainsFunc(r.Differences, func(d Difference) bool { return o.ID == d.ID && o.What == d.What }) {
			gone++
		}
	}
	if gone > 0 {
		c.Stale = append(slices.Clone(r.Stale), Stale{What: fmt.Sprintf("the cluster was changing: %s only for a moment", count(gone, "difference"))})
	}
	return &c
}

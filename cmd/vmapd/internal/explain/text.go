package explain

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// WriteText writes the explanation as text for people.
func (e Explanation) WriteText(w io.Writer) error {
	var out strings.Builder
	// Without an API server, nothing has validated names, and the output goes to a terminal.
	line := func(format string, args ...any) {
		out.WriteString(model.OneLine(fmt.Sprintf(format, args...)) + "\n")
	}
	line("from %s%s (%s)", named(e.Client.Name), e.Client.Address, e.sayClient())
	line("to   %s%v", named(e.Destination.Name), e.Destination)
	line("on   %s", e.sayNode())
	for _, n := range e.Notes {
		line("note: %s", n)
	}
	line("")
	for i, s := range e.Steps {
		line("%d. %s", i+1, s.Text)
		for _, l := range s.Lines {
			line("   %s", l)
		}
	}
	line("")
	for _, p := range e.Problems {
		line("problem: %s", p)
	}
	for _, n := range e.Next {
		line("next: %s", n)
	}
	if len(e.Next)+len(e.Problems) > 0 {
		line("")
	}
	line("=> %s", e.Conclusion)
	_, err := io.WriteString(w, out.String())
	return err
}

// named returns the name of the object at an address.
func named(name string) string {
	if name == "" {
		return ""
	}
	return name + ", "
}

func (e *Explanation) sayNode() string {
	switch {
	case !e.Node.Known:
		return e.Node.Name + " (its Node object is missing, so its addresses and its zone are not known)"
	case e.Node.Zone != "":
		return fmt.Sprintf("%s, in zone %s", e.Node.Name, e.Node.Zone)
	}
	return e.Node.Name
}

func (e *Explanation) sayClient() string {
	text := e.sayKind()
	if len(e.Client.EndpointOf) > 0 {
		text += "; it is an endpoint in EndpointSlice " + strings.Join(firstFew(e.Client.EndpointOf), ", ")
		if e.Client.PodNode != "" {
			text += ", on " + e.Client.PodNode
		}
	}
	return text
}

func firstFew(list []string) []string {
	if len(list) > fewAddresses {
		return append(list[:fewAddresses:fewAddresses], "...")
	}
	return list
}

func (e *Explanation) sayKind() string {
	c := e.Client
	ranges := strings.Join(c.PodRanges, ", ")
	return cmp.Or(map[string]string{
		"pod clusterCIDR":         "a pod: its address is in the cluster's range " + ranges,
		"pod nodeCIDR":            "a pod: its address is in this node's range " + ranges,
		"pod interface":           "a pod: the connection arrives by the interface " + c.Interface,
		"pod interfacePrefix":     "a pod: the connection arrives by the interface " + c.Interface,
		"notPod clusterCIDR":      "not a pod: its address is not in the cluster's range " + ranges,
		"notPod nodeCIDR":         "not a pod of this node: its address is not in this node's range " + ranges,
		"notPod interface":        fmt.Sprintf("not a pod: pods' connections arrive by the interface %s, and this one by %s", c.PodInterface, c.Interface),
		"notPod interfacePrefix":  fmt.Sprintf("not a pod: pods' connections arrive by interfaces whose names begin with %s, and this one by %s", c.PodInterface, c.Interface),
		"unknown interface":       "treated as no pod: pods are recognized by their interface, and --interface was not given",
		"unknown interfacePrefix": "treated as no pod: pods are recognized by their interface, and --interface was not given",
		"unknown nodeCIDRUnset":   "possibly a pod: this Node has no spec.podCIDRs",
		"unknown none":            "possibly a pod: without --cluster-cidr, pods are not recognized",
	}[c.Kind+" "+c.Detection], "a process of this node")
}

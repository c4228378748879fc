package kube

import (
	"embed"
	"fmt"
	"maps"
	"strings"
	"text/template"
)

//go:embed templates
var templates embed.FS

// fill returns a template with the values of the cluster, and more ones, filled in. A template without a value is a
// mistake in this program.
func (c *Cluster) fill(name string, more map[string]string) string {
	v4, v6 := Addresses(Control)
	values := map[string]string{
		"Dir": c.Dir, "PKI": c.path("pki"), "Server": APIServer(), "Address": v4.String(), "Port": apiPort,
		"ServiceRanges": ServiceRanges, "PodRanges": PodRanges, "DNS": DNSAddress, "Domain": ClusterDomain,
		"ServerNames": fmt.Sprintf("DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,"+
			"DNS:kubernetes.default.svc.%s,IP:%v,IP:%v,IP:127.0.0.1,IP:%s,IP:%s",
			ClusterDomain, v4, v6, kubernetes4, kubernetes6),
	}
	maps.Copy(values, more)
	var b strings.Builder
	t := template.Must(template.New(name).Option("missingkey=error").ParseFS(templates, "templates/"+name))
	if err := t.Execute(&b, values); err != nil {
		panic(err)
	}
	return b.String()
}

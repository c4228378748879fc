package kube

import (
	"embed"
	"fmt"
	"maps"
	"os"
	"strings"
	"text/template"
)

//go:embed templates
var templates embed.FS

// text returns a file of the folder templates as it is.
func text(name string) string {
	data, err := templates.ReadFile("templates/" + name)
	if err != nil {
		panic(err) // it is part of this program
	}
	return string(data)
}

// fill returns a template with the values of the cluster, and more ones, filled in.
func (c *Cluster) fill(name string, more map[string]string) (string, error) {
	v4, v6 := Addresses(Control)
	values := map[string]string{
		"Dir": c.Dir, "PKI": c.path("pki"), "Server": APIServer(), "Address": v4.String(), "Port": apiPort,
		"ServiceRanges": ServiceRanges, "PodRanges": PodRanges, "DNS": DNSAddress, "Domain": ClusterDomain,
		"ServerNames": fmt.Sprintf("DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.%s,"+
			"IP:%v,IP:%v,IP:127.0.0.1,IP:%s,IP:%s", ClusterDomain, v4, v6, kubernetes4, kubernetes6),
	}
	maps.Copy(values, more)
	t, err := template.New(name).Option("missingkey=error").Parse(text(name))
	if err != nil {
		return "", fmt.Errorf("read the template %s: %w", name, err)
	}
	var b strings.Builder
	if err := t.Execute(&b, values); err != nil {
		return "", fmt.Errorf("fill in the template %s: %w", name, err)
	}
	return b.String(), nil
}

// writeFilled writes a template, with its values filled in, to a file.
func (c *Cluster) writeFilled(name, file string, more map[string]string) error {
	text, err := c.fill(name, more)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

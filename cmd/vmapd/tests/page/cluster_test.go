package page

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// Texts that would run a script if they became markup, and a name that no API server admits.
const (
	hostileText = `<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>`
	hostileName = `"><svg onload=window.hacked=3>`
)

// elsewhere is a Service whose connections stay on their node, where it has no endpoint.
const elsewhere = `---
apiVersion: v1
kind: Service
metadata: {namespace: default, name: cache}
spec: {clusterIP: 172.31.0.15, internalTrafficPolicy: Local, ports: [{name: redis, port: 6379}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: default, name: cache-1, labels: {kubernetes.io/service-name: cache}}
addressType: IPv4
ports: [{name: redis, port: 6379}]
endpoints: [{addresses: [10.1.0.9], nodeName: node-2}]
`

// many is the number of generated Services.
const many = 10_000

// writeCluster writes manifests: many Services of one endpoint, one without endpoints, one without any on this
// node, and three with hostile texts wherever an object has text.
func writeCluster(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var b strings.Builder
	for i := range many {
		name := fmt.Sprintf("service-%04d", i)
		service(&b, "shop", name, "http", fmt.Sprintf("172.30.%d.%d", i/250, i%250+1), "")
		slice(&b, "shop", name, "http", fmt.Sprintf("10.0.%d.%d", i/250, i%250+1))
		if i%1000 == 999 { // a file for each thousand: a file has a limit
			write(t, filepath.Join(dir, fmt.Sprintf("services-%d.yaml", i/1000)), &b)
		}
	}
	service(&b, "default", "web", "http", "172.31.0.10", "")
	for i := 1; i <= 3; i++ {
		slice(&b, "default", fmt.Sprintf("web-%d", i), "http", fmt.Sprintf("10.1.0.%d", i))
	}
	service(&b, "default", "refused", "http", "172.31.0.11", "")
	b.WriteString(elsewhere)
	service(&b, "hostile", "annotation", "http", "172.31.0.12", hostileText)
	service(&b, "hostile", "port", hostileText, "172.31.0.13", "")
	service(&b, "hostile", hostileName, "http", "172.31.0.14", "")
	write(t, filepath.Join(dir, "others.yaml"), &b)
	return dir
}

func write(t *testing.T, path string, b *strings.Builder) {
	t.Helper()
	testaid.Write(t, path, b.String())
	b.Reset()
}

func service(b *strings.Builder, namespace, name, port, ip, algorithm string) {
	fmt.Fprintf(b, "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: %s, name: %q", namespace, name)
	if algorithm != "" {
		fmt.Fprintf(b, ", annotations: {vmapd.io/lb-algorithm: %q}", algorithm)
	}
	fmt.Fprintf(b, "}\nspec: {clusterIP: %s, ports: [{name: %q, port: 80}]}\n", ip, port)
}

func slice(b *strings.Builder, namespace, name, port, ip string) {
	service := name
	if namespace == "default" {
		service = "web"
	}
	fmt.Fprintf(b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
		"metadata: {namespace: %s, name: %q, labels: {kubernetes.io/service-name: %q}}\naddressType: IPv4\n"+
		"ports: [{name: %q, port: 8080}]\nendpoints: [{addresses: [%s]}]\n", namespace, name, service, port, ip)
}

package life

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

const many = 2000

// manyServices applies many Services at once, and waits for their EndpointSlices.
func manyServices(ctx context.Context, r *Run) error {
	var m strings.Builder
	const pods = `{apiVersion: v1, kind: Namespace, metadata: {name: many}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: many}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: %s, args: [--port=8080, --longer=0s]}]
`
	fmt.Fprintf(&m, pods, kube.PodserverImage)
	for i := range many {
		fmt.Fprintf(&m, "---\n{apiVersion: v1, kind: Service, metadata: {name: s%d, namespace: many}, spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}\n", i)
	}
	file := filepath.Join(r.Work, "many.yaml")
	if err := os.WriteFile(file, []byte(m.String()), 0o600); err != nil {
		return err
	}
	if _, err := r.Kubectl(ctx, "apply", "--server-side", "-f", file); err != nil {
		return err
	}
	if err := r.RolledOut(ctx, "many", "deployment/web"); err != nil {
		return err
	}
	return kube.Until(ctx, 5*time.Minute, "wait for EndpointSlices", func() error {
		const ready = `{range .items[*]}{.endpoints[1].conditions.ready}{"\n"}{end}`
		out, err := r.Kubectl(ctx, "-n", "many", "get", "endpointslices", "-o", "jsonpath="+ready)
		if n := strings.Count(out, "true"); err == nil && n < many {
			err = fmt.Errorf("%d of %d EndpointSlices have two ready endpoints", n, many)
		}
		return err
	})
}

package names

import (
	"fmt"
	"strings"
)

// ParseService reads the name of a Service, without a port: NAME, NAMESPACE/NAME, svc/NAME or NAME.NAMESPACE.svc.
func ParseService(s string) (Ref, error) {
	r := Ref{Kind: Service, text: s}
	name, namespace := s, ""
	for _, kind := range []string{"svc/", "service/", "services/"} {
		name = strings.TrimPrefix(name, kind)
	}
	if before, after, ok := strings.Cut(name, "/"); ok {
		namespace, name = before, after
	} else if labels := strings.Split(strings.TrimSuffix(name, "."), "."); len(labels) == 2 || len(labels) > 2 && labels[2] == "svc" {
		name, namespace = labels[0], labels[1]
	}
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	if name == "" || strings.Trim(strings.ToLower(name+namespace), letters) != "" {
		return r, fmt.Errorf("want a Service as NAME or NAMESPACE/NAME; got %q", s)
	}
	r.Namespace, r.Name = namespace, name
	return r, nil
}

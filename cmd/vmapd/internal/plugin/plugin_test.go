package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
)

// answers stands for kubectl.
func answers(_ context.Context, args ...string) ([]byte, error) {
	for question, answer := range map[string]string{
		"get pods -n kube-system -l k8s-app=vmapd -o json": `{"items": [
			{"metadata": {"name": "vmapd-b"}, "spec": {"nodeName": "b", "containers": [{"name": "vmapd"}]}, "status": {"phase": "Running"}},
			{"metadata": {"name": "vmapd-a"}, "spec": {"nodeName": "a", "containers": [{"name": "vmapd"}]}, "status": {"phase": "Running"}},
			{"metadata": {"name": "vmapd-c"}, "spec": {"nodeName": "c", "containers": [{"name": "vmapd"}]}, "status": {"phase": "Pending"}}]}`,
		"get pod web-1 -n shop -o json": `{"spec": {"nodeName": "b"}, "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}`,
		"get pod web-3 -n shop -o json": `{"spec": {"nodeName": "c"}}`,
		"get endpointslices -n shop -l kubernetes.io/service-name=web -o json": `{"items": [{"endpoints": [
			{"nodeName": "a", "conditions": {"ready": false}}, {"nodeName": "b"}, {"nodeName": "c"}]}]}`,
		"get endpointslices -n other -l kubernetes.io/service-name=web -o json": `{}`,
	} {
		if strings.Join(args, " ") == question {
			return []byte(answer), nil
		}
	}
	return nil, errors.New("not found")
}

func TestFindChoosesTheNode(t *testing.T) {
	for name, test := range map[string]struct {
		node, from, to string
		want           string // node and reason, or the error
		client         []string
	}{
		"of --node":               {node: "a", from: "pod/web-1", want: "a, --node", client: []string{"10.0.0.1", "fd00::1"}},
		"of the client":           {from: "pod/web-1", to: "svc/web:80", want: "b, pod shop/web-1 is there", client: []string{"10.0.0.1", "fd00::1"}},
		"of a node":               {from: "node/a", to: "svc/web:80", want: "a, node/a"},
		"of an endpoint":          {from: "192.0.2.1", to: "web:80", want: "b, an endpoint of web:80 is there"},
		"any":                     {to: "other/web:80", want: "a, one of 2; --node chooses"},
		"without a pod of vmapd":  {node: "d", want: "no pod of vmapd runs on node d (--node); it runs on a, b"},
		"of a pod that is not up": {from: "pod/web-3", want: "no pod of vmapd runs on node c (pod shop/web-3 is there); it runs on a, b"},
		"of nobody":               {from: "pod/web-9", want: "find the node of pod/web-9: not found"},
	} {
		var refs []names.Ref
		for text, parse := range map[string]func(string) (names.Ref, error){test.from: names.ParseSource, test.to: names.ParseDestination} {
			if text == "" {
				continue
			}
			ref, err := parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if text == test.from {
				refs = slices.Insert(refs, 0, ref)
			} else {
				refs = append(refs, ref)
			}
		}
		p := Plugin{Kubectl: answers, Namespace: "kube-system", Selector: "k8s-app=vmapd", Node: test.node}
		target, err := p.Find(t.Context(), "shop", refs)
		got := target.Node + ", " + target.Why
		if err != nil {
			got = err.Error()
		}
		if got != test.want || !slices.Equal(target.Client, test.client) {
			t.Errorf("the node %s: got %q, client %v; want %q, %v", name, got, target.Client, test.want, test.client)
		}
	}
}

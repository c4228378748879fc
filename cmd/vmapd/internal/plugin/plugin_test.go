package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// answers stands for kubectl.
func answers(_ context.Context, args ...string) ([]byte, error) {
	for question, answer := range map[string]string{
		"get pods -n kube-system -l k8s-app=vmapd -o json": `{"items": [
			{"metadata": {"name": "vmapd-b"}, "spec": {"nodeName": "b", "containers": [{"name": "vmapd"}]},
				"status": {"phase": "Running"}},
			{"metadata": {"name": "vmapd-a"}, "spec": {"nodeName": "a", "containers": [{"name": "vmapd"}]},
				"status": {"phase": "Running"}},
			{"metadata": {"name": "vmapd-c"}, "spec": {"nodeName": "c", "containers": [{"name": "vmapd"}]},
				"status": {"phase": "Pending"}}]}`,
		"get pod web-1 -n shop -o json": `{"spec": {"nodeName": "b"}, "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": ` +
			`"fd00::1"}]}}`,
		"get pod web-3 -n shop -o json": `{"spec": {"nodeName": "c"}}`,
	} {
		if strings.Join(args, " ") == question {
			return []byte(answer), nil
		}
	}
	return nil, errors.New("not found")
}

func must(ref names.Ref, err error) names.Ref {
	if err != nil {
		panic(err)
	}
	return ref
}

func TestFindChoosesTheNode(t *testing.T) {
	for name, test := range map[string]struct {
		node, from, to string
		want           string // the node, or the error
		client         []string
	}{
		"of --node":               {node: "a", from: "pod/web-1", want: "a", client: []string{"10.0.0.1", "fd00::1"}},
		"of the client":           {from: "pod/web-1", to: "svc/web:80", want: "b", client: []string{"10.0.0.1", "fd00::1"}},
		"of a node":               {from: "node/a", to: "svc/web:80", want: "a"},
		"of the destination":      {from: "192.0.2.1", to: "pod/web-1:80", want: "b"},
		"any":                     {to: "other/web:80", want: "a"},
		"without a pod of vmapd":  {node: "d", want: "no pod of vmapd runs on node d; it runs on a, b"},
		"of a pod that is not up": {from: "pod/web-3", want: "no pod of vmapd runs on node c; it runs on a, b"},
		"of nobody":               {from: "pod/web-9", want: "find the node of pod/web-9: not found"},
	} {
		var refs []names.Ref
		if test.from != "" {
			refs = append(refs, must(names.ParseSource(test.from)))
		}
		if test.to != "" {
			refs = append(refs, must(names.ParseDestination(test.to)))
		}
		p := Plugin{Kubectl: answers, Namespace: "kube-system", Selector: "k8s-app=vmapd", Node: test.node}
		target, err := p.Find(t.Context(), "shop", refs)
		got := target.Node
		if err != nil {
			got = err.Error()
		}
		if got != test.want || !slices.Equal(target.Client, test.client) {
			t.Errorf("the node %s: got %q, client %v; want %q, %v", name, got, target.Client, test.want, test.client)
		}
	}
}

// Each Node has its place, those that fail first, and one without a pod is not left out.
func TestAllNodesAreAsked(t *testing.T) {
	p := Plugin{Namespace: "kube-system", Selector: "k8s-app=vmapd", Kubectl: func(ctx context.Context,
		args ...string,
	) ([]byte, error) {
		switch line := strings.Join(args, " "); {
		case strings.HasPrefix(line, "get nodes"):
			return []byte("a b c e"), nil
		case strings.Contains(line, "vmapd-a") && strings.Contains(line, "doctor"):
			return []byte(`{"node": "a", "level": "ok", "lines": [{"level": "ok", "name": "daemon", "text": "runs"}]}`), nil
		case strings.Contains(line, "doctor"):
			const failure = `{"node": "b", "level": "fail", "lines": [{"level": "fail", "name": "sync", "text": "no", ` +
				`"fix": "x"}]}`
			return []byte(failure), errors.New("command terminated with exit code 3")
		case strings.Contains(line, "vmapd-a") && strings.Contains(line, "status"):
			return []byte(`{"ready": true, "level": "ok"}`), nil
		case strings.Contains(line, "status"):
			return nil, errors.New("no daemon answers")
		}
		return answers(ctx, args...)
	}}
	all, err := p.Ask(t.Context(), []string{"status"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range all {
		got = append(got, n.Node+" "+n.Error)
	}
	want := []string{"b no daemon answers", "c pod /vmapd-c is Pending", "e no pod of vmapd is on this node", "a "}
	testaid.Equal(t, "status", want, got)
	notes := NodesTable(all, time.Now()).Notes
	if last := notes[len(notes)-1]; last != "4 nodes: 1 ready, 0 not ready, 3 without an answer" {
		t.Errorf("%q", last)
	}
	reports, err := p.Ask(t.Context(), []string{"doctor"})
	if err != nil || !Failed(reports) {
		t.Fatal(err, reports)
	}
	var out strings.Builder
	if err := report.Print(&out, report.InText, nil, func(text *report.Text) { WriteReports(text, reports) }); err != nil {
		t.Fatal(err)
	}
	const text = `b: 1 failure, 0 warnings, 0 ok
fail  sync          no
                    -> x

c: no answer: pod /vmapd-c is Pending

e: no answer: no pod of vmapd is on this node

a: 0 failures, 0 warnings, 1 ok
`
	testaid.Equal(t, "doctor", text, out.String())
}

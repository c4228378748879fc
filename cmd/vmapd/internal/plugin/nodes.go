package plugin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
)

const (
	// atOnce is the number of pods that are asked at a time.
	atOnce = 16
	// askTime is how long a pod may take for an answer: the daemon's deadline, and some for the API server.
	askTime = 10 * time.Second
)

// Answer is that of a node's daemon to status or doctor, or the reason for which there is none.
type Answer struct {
	Node   string           `json:"node"`
	Pod    string           `json:"pod,omitempty"`
	Error  string           `json:"error,omitempty"`
	Status *status.Overview `json:"status,omitempty"`
	Report *doctor.Report   `json:"report,omitempty"`
}

// Ask runs a command line of status or doctor in all pods, and returns the answers, the worst first.
func (p *Plugin) Ask(ctx context.Context, line []string) ([]Answer, error) {
	pods, err := p.everywhere(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]Answer, len(pods))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), atOnce, len(pods), func(i int) {
		t := pods[i]
		n := Answer{Node: t.Node, Pod: t.Pod}
		out, err := p.in(ctx, t, slices.Concat(line, []string{"--output=json"})...)
		var into any = &n.Status
		if line[0] == "doctor" {
			into = &n.Report
		}
		if json.Unmarshal(out, into) != nil || len(out) == 0 { // else, an exit code is about the node
			n = Answer{Node: t.Node, Pod: t.Pod, Error: cmp.Or(err, errors.New("its answer is no JSON")).Error()}
		}
		nodes[i] = n
	})
	slices.SortStableFunc(nodes, func(a, b Answer) int { return cmp.Compare(a.level().Rank(), b.level().Rank()) })
	return nodes, nil
}

func (n *Answer) level() report.Level {
	switch {
	case n.Status != nil:
		return n.Status.Level
	case n.Report != nil:
		return n.Report.Level
	}
	return report.Fail
}

// everywhere returns a target for each Linux Node, by name; with the right to list Nodes, also for those without a pod.
func (p *Plugin) everywhere(ctx context.Context) ([]Target, error) {
	targets, err := p.Pods(ctx)
	if err != nil {
		return nil, err
	}
	out, _ := p.Kubectl(ctx, "get", "nodes", "-l", corev1.LabelOSStable+"=linux",
		"-o", "jsonpath={.items[*].metadata.name}")
	for node := range strings.FieldsSeq(string(out)) {
		if !slices.ContainsFunc(targets, func(t Target) bool { return t.Node == node }) {
			targets = append(targets, Target{Node: node, NotRunning: "no pod of vmapd is on this node"})
		}
	}
	slices.SortFunc(targets, func(a, b Target) int { return strings.Compare(a.Node, b.Node) })
	return targets, nil
}

func (p *Plugin) in(ctx context.Context, t Target, args ...string) ([]byte, error) {
	if t.NotRunning != "" {
		return nil, errors.New(t.NotRunning)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("no answer within %v", askTime))
	defer cancel()
	out, err := p.Kubectl(ctx, t.Exec(args...)...)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		// kubectl adds a line about the exit code.
		text, _, _ := strings.Cut(err.Error(), "\ncommand terminated with exit code")
		err = errors.New(strings.TrimPrefix(text, "vmapd: "))
	}
	return bytes.TrimSpace(out), err
}

// Ready reports whether the daemon answers and is ready.
func (n *Answer) Ready() bool { return n.Status != nil && n.Status.Ready }

// WriteReports writes what is not ok on each node.
func WriteReports(t *report.Text, nodes []Answer) {
	for i, n := range nodes {
		if i > 0 && nodes[i-1].level() != report.OK {
			t.Say("")
		}
		if n.Report == nil {
			t.Mark(report.Fail, "%s: no answer: %s", n.Node, n.Error)
			continue
		}
		t.Mark(n.level(), "%s: %s", n.Node, report.Total(n.Report.Lines))
		t.Findings(report.Bad(n.Report.Lines))
	}
}

// Failed reports whether a node has a failure, or no answer.
func Failed(nodes []Answer) bool { return len(nodes) > 0 && nodes[0].level() == report.Fail }

// NodesTable has a row for each node, those that fail first.
func NodesTable(nodes []Answer, now time.Time) report.Table {
	var t report.Table
	t.Columns = []string{"NODE", "READY", "BACKEND", "SERVICES", "LAST-SYNC", "PROBLEMS", "DOCTOR", "VERSION"}
	ready, silent := 0, 0
	for _, n := range nodes {
		cells := []string{n.Node, "no answer", "", "", "", "", "", ""}
		if s := n.Status; s != nil {
			cells = []string{
				n.Node, map[bool]string{false: "no", true: "yes"}[s.Ready], s.Backend, s.States.String(),
				report.Age(s.LastSync(), now), strconv.Itoa(len(s.Problems)), s.Doctor, s.Version,
			}
		} else {
			silent++
			t.Notes = append(t.Notes, n.Node+": "+n.Error)
		}
		if n.Ready() {
			ready++
		}
		t.Rows = append(t.Rows, report.Row{Level: n.level(), Cells: cells})
	}
	t.Notes = append(t.Notes, fmt.Sprintf("%s: %d ready, %d not ready, %d without an answer",
		report.Plural(len(nodes), "node"), ready, len(nodes)-ready-silent, silent))
	return t
}

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

	"golang.org/x/sync/errgroup"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
)

const (
	// atOnce is the number of pods that are asked at a time.
	atOnce = 16
	// askTime is how long a pod may take for an answer: the daemon's deadline, and some for the API server.
	askTime = 10 * time.Second
)

// NodeStatus is the answer of a node's daemon, or the reason for which there is none.
type NodeStatus struct {
	Node   string           `json:"node"`
	Pod    string           `json:"pod"`
	Error  string           `json:"error,omitempty"`
	Status *status.Overview `json:"status,omitempty"`
}

// Ask asks all daemons for their state.
func (p *Plugin) Ask(ctx context.Context) ([]NodeStatus, error) {
	pods, err := p.Pods(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]NodeStatus, len(pods))
	p.each(pods, func(i int, t Target) {
		nodes[i] = NodeStatus{Node: t.Node, Pod: t.Pod}
		out, err := p.in(ctx, t, "status", "-o", "json")
		if err == nil {
			err = json.Unmarshal(out, &nodes[i].Status)
		}
		if err != nil {
			nodes[i].Error, nodes[i].Status = err.Error(), nil
		}
	})
	slices.SortFunc(nodes, func(a, b NodeStatus) int {
		return cmp.Or(cmp.Compare(a.level().Rank(), b.level().Rank()), strings.Compare(a.Node, b.Node))
	})
	return nodes, nil
}

// each calls a function for all pods, a few at a time.
func (p *Plugin) each(pods []Target, do func(i int, t Target)) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, t := range pods {
		group.Go(func() error {
			do(i, t)
			return nil
		})
	}
	_ = group.Wait()
}

// in runs a command in a pod, and returns its output.
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
func (n *NodeStatus) Ready() bool { return n.Status != nil && n.Status.Ready }

func (n *NodeStatus) level() report.Level {
	if n.Status == nil {
		return report.Fail
	}
	return n.Status.Level
}

// NodesTable has a row for each node, those that fail first.
func NodesTable(nodes []NodeStatus, now time.Time) report.Table {
	var t report.Table
	t.Columns = []string{"NODE", "READY", "BACKEND", "SERVICES", "LAST-SYNC", "PROBLEMS", "DOCTOR", "VERSION"}
	ready, silent := 0, 0
	for _, n := range nodes {
		cells := []string{n.Node, "no answer", "", "", "", "", "", ""}
		switch s := n.Status; {
		case s == nil:
			silent++
			t.Notes = append(t.Notes, n.Node+": "+n.Error)
		default:
			cells = []string{
				n.Node, "no", s.Backend, s.States.String(), report.Age(s.LastSync(), now),
				strconv.Itoa(len(s.Problems)), s.Doctor, s.Version,
			}
			if s.Ready {
				ready++
				cells[1] = "yes"
			}
		}
		t.Rows = append(t.Rows, report.Row{Level: n.level(), Cells: cells})
	}
	t.Notes = append(t.Notes, fmt.Sprintf("%s: %d ready, %d not ready, %d without an answer",
		report.Plural(len(nodes), "node"), ready, len(nodes)-ready-silent, silent))
	return t
}

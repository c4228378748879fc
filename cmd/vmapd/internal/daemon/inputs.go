package daemon

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/hostaddr"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/manifest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// inputs are a state, and what fills it.
type inputs struct {
	state    *reconcile.State
	tasks    []task
	describe func(model.Problem) string // nil, or adds the place to a problem
	cluster  *informer.Source           // nil with files
}

// openInputs returns a cluster or files, and the addresses of this host that are no Service's.
func (d *base) openInputs(traffic model.Config) (inputs, error) {
	c, in := d.config, inputs{state: reconcile.NewState(model.NewBuilder(traffic), 2)} // of two sources
	d.events.ServiceUID = in.state.ServiceUID
	fill := func(run func(context.Context, *reconcile.State) error) {
		in.tasks = append(in.tasks, func(ctx context.Context) error { return run(ctx, in.state) })
	}
	if len(c.From) > 0 {
		s, err := manifest.Open(c.From, d.log)
		if err != nil {
			return in, err
		}
		in.tasks = append(in.tasks, noError(func(ctx context.Context) { s.Run(ctx, in.state) }))
		in.describe = s.Located
	} else {
		in.cluster = &informer.Source{Client: d.client, NodeName: traffic.NodeName, Log: d.log, Plain: c.PlainLists()}
		fill(in.cluster.Run)
	}
	ignored := []string{ipvs.DefaultDevice, host.KubeProxyDevice, userspace.DeviceName}
	fill((&hostaddr.Source{Log: d.log, Ignore: ignored}).Run)
	return in, nil
}

// again asks for another round.
func (in inputs) again() { in.state.Update(reconcile.Change{}, func(*model.Builder) {}) }

// unreadable returns what can't be read from the API server, and what has not been read yet, for clients that are not
// authenticated: most errors are left out.
func (in inputs) unreadable() (sentences []string) {
	failing := map[string]bool{}
	for _, f := range in.cluster.Failing() {
		failing[f.Resource] = true
		if f.Silent() {
			sentences = append(sentences, fmt.Sprintf("%s can't be read from the API server: %v", f.Resource, f.Err))
		} else {
			sentences = append(sentences, f.Resource+" can't be read from the API server; the log has the reason")
		}
	}
	for _, kind := range in.cluster.Unread() {
		if !failing[kind] {
			sentences = append(sentences, kind+" have not been read yet")
		}
	}
	return sentences
}

// unprogrammed is the answer to a question about Services before anything is programmed.
func (in inputs) unprogrammed() error {
	text := "the daemon has not programmed anything yet: it waits for the objects of the cluster"
	if in.cluster != nil && len(in.cluster.Unread()) > 0 {
		text += fmt.Sprintf(" (%s); vmapd doctor has the reason", strings.Join(in.cluster.Unread(), ", "))
	}
	return &socket.Error{Status: http.StatusServiceUnavailable, Message: text}
}

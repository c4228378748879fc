package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/conntrack"
)

// mostTracked is the number of entries of connection tracking up to which those of all Services are
// counted: the kernel lists a million in about a second.
const mostTracked = 100_000

// filterOf returns the Services that a request is about. A Service that is named must be there.
func (a *answers) filterOf(query url.Values) (status.Filter, *status.View, error) {
	view := a.observers.view.View()
	f := status.Filter{Namespace: query.Get("namespace"), Name: query.Get("name"), Search: strings.ToLower(query.Get("search"))}
	switch {
	case view.Snapshot == nil:
		return f, view, a.in.unprogrammed()
	case f.Name != "" && len(view.Services(f, 1, nil).Items) == 0:
		return f, view, socket.NotFound(fmt.Sprintf("the daemon serves no Service %s/%s: there is none, or it is headless, or of type ExternalName, "+
			"or its cluster IP is missing, or it belongs to another proxy; vmapd explain tells more", f.Namespace, f.Name))
	}
	return f, view, nil
}

// overview answers /v1/status.
func (a *answers) overview(context.Context, url.Values) (any, error) {
	return a.observers.view.View().Overview(a.facts()), nil
}

// facts are the parts of an overview that are not in the view.
func (a *answers) facts() status.Daemon {
	health := a.observers.tracker.Status()
	d := status.Daemon{
		Version: version(), Started: a.started.UTC().Truncate(time.Second), Node: a.nodeName,
		Backend: a.plane.name, With: a.plane.with, Why: a.plane.why,
		Ready: health.Ready, Healthy: health.Healthy, NotEligible: health.Why,
		OtherProxies: slices.Sorted(maps.Values(a.plane.rivals.current())),
		Leftovers:    a.plane.sweep.remaining().String(),
		Notes:        a.problems(health.NoNode), Counters: a.counters(),
	}
	for _, f := range model.Families {
		d.Synced = append(d.Synced, health.Families[f].Synced)
		d.Waiting = append(d.Waiting, health.Families[f].Waiting)
	}
	d.FastPath, _ = a.plane.fastPath(a.config.FastPath.On(), &a.observers.flowLister)
	if used, most, err := nodesetup.TableUse(nodesetup.Options{}); err == nil {
		d.Tracked, d.TrackedMost = used, most
	}
	return d
}

// problems are whole sentences: the proxy works with old or incomplete information. noNode is the name of the Node if
// the cluster has none.
func (a *answers) problems(noNode string) (list []string) {
	if noNode != "" {
		list = append(list, fmt.Sprintf("the cluster has no Node %q", noNode))
	}
	list = append(list, a.plane.listenerNotes()...)
	if a.in.cluster != nil {
		for _, f := range a.in.cluster.Failing() {
			list = append(list, fmt.Sprintf("%s can't be read from the API server since %s (%s): %v",
				f.Resource, f.Since.UTC().Format(time.RFC3339), time.Since(f.Since).Round(time.Second), f.Err))
		}
	}
	for _, kind := range a.in.unread() {
		list = append(list, kind+" have not been read from the API server yet")
	}
	return list
}

// counters reports whether new connections are counted. Listeners count by themselves.
func (a *answers) counters() bool {
	return a.plane.userspace != nil || a.plane.nft != nil && a.config.ServiceCounters
}

// services answers /v1/services.
func (a *answers) services(_ context.Context, query url.Values) (any, error) {
	filter, view, err := a.filterOf(query)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(query)
	if err != nil {
		return nil, err
	}
	return view.Services(filter, limit, a.counts()), nil
}

func limitOf(query url.Values) (int, error) {
	text := query.Get("limit")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, socket.BadRequest(fmt.Sprintf("limit: %q is not a number from 0 on", text))
	}
	return n, nil
}

// endpoints answers /v1/endpoints.
func (a *answers) endpoints(_ context.Context, query url.Values) (any, error) {
	filter, view, err := a.filterOf(query)
	if err != nil {
		return nil, err
	}
	return view.Endpoints(filter), nil
}

// counts returns the numbers of new connections, or nil if they are not counted.
func (a *answers) counts() status.Counts {
	switch {
	case !a.counters():
		return nil
	case a.plane.userspace != nil:
		return a.countsByListeners()
	}
	return countsOf(serviceConnections(a.plane.nft, a.log))
}

func countsOf(list []kernel.Count) status.Counts {
	counts := make(status.Counts, len(list))
	for _, c := range list {
		counts[status.CountKey{Name: c.Name, Family: c.Family}] = c.Connections
	}
	return counts
}

// connections answers /v1/connections.
func (a *answers) connections(ctx context.Context, query url.Values) (any, error) {
	filter, view, err := a.filterOf(query)
	if err != nil {
		return nil, err
	}
	flows, note := view.Flows(filter), ""
	used, _, err := nodesetup.TableUse(nodesetup.Options{})
	switch {
	case a.plane.userspace != nil:
		note = "entries of connection tracking are not counted: with userspace, no connection is translated"
	case err != nil:
		note = "entries of connection tracking are not counted: " + err.Error()
	case used > mostTracked && filter.Name == "":
		note = fmt.Sprintf("entries of connection tracking are not counted, because there are %d; name a Service", used)
	default:
		if err := a.track(ctx, flows); err != nil {
			note = "entries of connection tracking are not counted: " + err.Error()
		}
	}
	counts := a.counts()
	list := flows.Connections(counts, note == "", note)
	if counts == nil {
		list.Note = strings.TrimPrefix(list.Note+"; new connections (NEW) are counted with --service-counters and nftables, or with userspace", "; ")
	}
	return list, nil
}

// track counts the entries of connection tracking.
func (a *answers) track(ctx context.Context, flows *status.Flows) error {
	const longest = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var errs []error
	for _, f := range model.Families {
		errs = append(errs, a.tracked.List(ctx, f, flows.Ports(f), func(t conntrack.Translated) {
			flows.Add(status.Flow{
				To: model.VIP{Addr: t.Dest.Addr(), Protocol: t.Protocol, Port: t.Dest.Port()}, At: t.Endpoint,
			})
		}))
	}
	return errors.Join(errs...)
}

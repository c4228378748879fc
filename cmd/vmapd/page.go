package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/webpage"
	"github.com/vmapd/vmapd/model"
)

// page returns the handler of the page at / of the metrics port, and of its requests.
func (a *answers) page() http.Handler {
	hosts := []string{strings.ToLower(a.nodeName)}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, strings.ToLower(name))
	}
	return webpage.Handler(map[string]socket.Route{
		"status":   a.overview,
		"services": a.search,
		"service":  a.one,
		"doctor":   a.examined,
	}, hosts...)
}

// search answers with service ports, without counts: these cost the most.
func (a *answers) search(_ context.Context, query url.Values) (any, error) {
	const most = 500
	filter, view, err := a.filterOf(query)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(query)
	if err != nil {
		return nil, err
	}
	if limit == 0 || limit > most {
		limit = most
	}
	return view.Services(filter, limit, nil), nil
}

// one answers with all about one Service.
func (a *answers) one(ctx context.Context, query url.Values) (any, error) {
	if query.Get("namespace") == "" || query.Get("name") == "" {
		return nil, socket.BadRequest("namespace and name must be given")
	}
	filter, view, err := a.filterOf(query)
	if err != nil {
		return nil, err
	}
	return view.One(filter, a.countsTo(ctx, view.OnesPorts(filter)), a.way), nil
}

// countsTo returns the numbers of new connections to a few service ports, or nil if they are not counted.
func (a *answers) countsTo(ctx context.Context, ports []*model.ServicePort) status.Counts {
	const mostFrontends = 200 // each is a question to the kernel
	frontends := 0
	for _, sp := range ports {
		frontends += len(sp.Frontends)
	}
	if !a.counters() || frontends > mostFrontends {
		return nil
	}
	counts, err := a.plane.nft.ConnectionsTo(ports)
	if err != nil {
		a.log.LogAttrs(ctx, slog.LevelDebug, "could not read counters of connections", slog.Any("err", err))
		return nil
	}
	return countsOf(counts)
}

// way returns the rules that connections to a service port meet, as they are in the kernel.
func (a *answers) way(sp *model.ServicePort) (stages []status.Stage) {
	if a.plane.nft == nil {
		return nil
	}
	rules := a.plane.nft.Ruleset(sp.Family)
	if rules == nil {
		return nil
	}
	for _, p := range rules.Excerpt(sp.Name, status.OnesLines) {
		s := status.Stage{Kind: "map", Name: p.Name, Comment: p.Comment, Lines: p.Lines, More: p.More}
		if p.Chain {
			s.Kind = "chain"
		}
		stages = append(stages, s)
	}
	return stages
}

// examined answers with the last examination of the node.
func (a *answers) examined(context.Context, url.Values) (any, error) {
	return a.observers.doctor.Report(), nil
}

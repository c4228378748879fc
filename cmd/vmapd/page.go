package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/webpage"
	"github.com/vmapd/vmapd/model"
)

// page returns the handler of the page at / of the socket, and of its requests.
func (a *answers) page() http.Handler {
	return webpage.Handler(map[string]socket.Route{
		"status":   a.overview,
		"services": a.search,
		"service":  a.one,
		"doctor":   a.examined,
	})
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
	counts, uncounted := a.countsTo(ctx)
	one := view.One(filter, counts, a.way)
	one.Uncounted = uncounted
	return one, nil
}

// countsTo returns the numbers of new connections to service ports, or the reason for which they are not counted.
func (a *answers) countsTo(ctx context.Context) (counts status.Counts, uncounted string) {
	switch {
	case a.plane.iptables != nil:
		return nil, "not counted: with iptables, each answer would need a listing of all rules"
	case a.plane.ipvs != nil:
		return nil, "not counted: IPVS counts nothing that is refused, and begins at 0 when it makes a virtual server anew"
	case a.plane.userspace != nil:
		return a.countsByListeners(), ""
	case !a.counters():
		return nil, "not counted: the daemon runs without --service-counters"
	}
	list, err := a.plane.nft.Connections(ctx)
	if err != nil {
		a.log.LogAttrs(ctx, slog.LevelDebug, "could not read counters of connections", slog.Any("err", err))
		return nil, "not counted: " + err.Error()
	}
	return countsOf(list), ""
}

// way returns the rules of nftables or iptables that connections to a service port meet, as they were programmed last.
func (a *answers) way(sp *model.ServicePort) (stages []status.Stage) {
	switch {
	case a.plane.nft != nil:
		if rules := a.plane.nft.Ruleset(sp.Family); rules != nil {
			for _, p := range rules.Excerpt(sp.Name, status.OnesLines) {
				s := status.Stage{Kind: "map", Name: p.Name, Comment: p.Comment, Lines: p.Lines, More: p.More}
				if p.Chain {
					s.Kind = "chain"
				}
				stages = append(stages, s)
			}
		}
	case a.plane.iptables != nil:
		if rules := a.plane.iptables.Ruleset(sp.Family); rules != nil {
			for _, p := range rules.Excerpt(sp.Name, status.OnesLines) {
				stages = append(stages, status.Stage{Kind: "chain", Name: p.Table + " " + p.Name, Comment: p.Comment, Lines: p.Lines, More: p.More})
			}
		}
	}
	return stages
}

// examined answers with the report of an examination of the node that is not old.
func (a *answers) examined(context.Context, url.Values) (any, error) {
	return a.observers.doctor.Fresh(), nil
}

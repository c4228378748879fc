package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/conntrack"
)

// answers has the parts of the daemon that requests at its socket are about. A request takes no lock that
// a round needs for longer than reading a pointer.
type answers struct {
	*base
	plane     *dataplane
	observers *observers
	in        inputs
	examiner  *examiner
	started   time.Time
	tracked   conntrack.Lister
}

// routes are all paths of the socket: state, a decision, and doctor's facts.
func (a *answers) routes() map[string]socket.Route {
	return map[string]socket.Route{
		"/v1/status":       a.overview,
		"/v1/services":     a.services,
		"/v1/service":      a.service,
		"/v1/explain":      a.explain,
		"/v1/doctor":       a.examiner.serve,
		"/v1/doctor/table": a.examiner.serveTable,
	}
}

// serve answers requests until ctx ends.
func (a *answers) serve(ctx context.Context) {
	s := socket.Server{Path: a.config.Socket, Routes: a.routes(), Log: a.log}
	s.Run(ctx)
}

// overview answers /v1/status.
func (a *answers) overview(context.Context, url.Values) (any, error) {
	lines := a.examiner.report(askedEvery).Lines
	o := status.Overview{
		Version: buildinfo.Current().String(), Started: a.started.UTC().Truncate(time.Second), Now: time.Now().UTC(), Node: a.nodeName,
		Backend: a.plane.name, With: a.plane.with, Why: a.plane.why,
		Problems: a.plane.listenerNotes(), Doctor: report.Total(lines), Findings: report.Bad(lines),
	}
	if used, most, err := nodesetup.TableUse(nodesetup.Options{}); err == nil {
		o.Tracked, o.TrackedMost = used, most
	}
	a.observers.view.View().AddTo(&o, a.observers.tracker.Status())
	return o, nil
}

// services answers /v1/services.
func (a *answers) services(_ context.Context, query url.Values) (any, error) {
	view := a.observers.view.View()
	if view.Snapshot == nil {
		return nil, a.in.unprogrammed()
	}
	limit, err := limitOf(query)
	if err != nil {
		return nil, err
	}
	return view.Services(status.Filter{Namespace: query.Get("namespace"), Search: strings.ToLower(query.Get("search"))}, limit), nil
}

// limitOf returns the number of a request's parameter, 0 without it.
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

// lookTime limits what the daemon reads for an answer about a Service: the API server, or the kernel, may be slow.
const lookTime = 2 * time.Second

// service answers /v1/service: with "tracked", entries of connection tracking are counted; with "rules", the rules
// are shown.
func (a *answers) service(ctx context.Context, query url.Values) (any, error) {
	view := a.observers.view.View()
	if view.Snapshot == nil {
		return nil, a.in.unprogrammed()
	}
	limit, err := limitOf(query)
	if err != nil {
		return nil, err
	}
	name := model.NamespacedName{Namespace: query.Get("namespace"), Name: query.Get("name")}
	ports := view.Ports(name)
	found := status.Found{Most: limit}
	note := func(what string, err error) {
		if err != nil {
			found.Notes = append(found.Notes, what+": "+err.Error())
		}
	}
	found.Places, err = a.places(ctx, name)
	note("the pods of endpoints are not known", err)
	found.Counts, err = a.countsTo(ports)
	note("new connections are not counted", err)
	if query.Has("tracked") {
		found.Flows, err = a.flows(ctx, ports)
		note("entries of connection tracking are not counted", err)
	}
	if query.Has("rules") {
		found.Rules = a.rules
	}
	one, ok := view.One(name, found)
	if !ok {
		return nil, socket.NotFound(fmt.Sprintf("the daemon serves no Service %s: there is none, or it is headless, or of type ExternalName, "+
			"or its cluster IP is missing, or it belongs to another proxy; vmapd explain has the reason", name))
	}
	return one, nil
}

// places reads the EndpointSlices of a Service in a cluster: their pods and zones are not in a snapshot.
func (a *answers) places(ctx context.Context, name model.NamespacedName) (status.Places, error) {
	if a.in.cluster == nil {
		return nil, nil
	}
	places := status.Places{}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	of := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name.Name}
	list, err := a.in.cluster.Client.EndpointSlices().In(name.Namespace).List(ctx, of)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		places.Add(&list.Items[i])
	}
	return places, nil
}

// countsTo returns the numbers of new connections to service ports, or the reason for which they are not counted.
func (a *answers) countsTo(ports []*model.ServicePort) (status.Counts, error) {
	switch {
	case a.plane.iptables != nil:
		return nil, errors.New("with iptables, each answer would need a listing of all rules")
	case a.plane.userspace != nil:
		counts := status.Counts{}
		for _, n := range a.plane.listenerCounts() {
			if i := slices.IndexFunc(ports, func(sp *model.ServicePort) bool { return sp.Name == n.Name && sp.Family == n.Family }); i >= 0 {
				counts[ports[i]] = n.Connections
			}
		}
		return counts, nil
	case a.plane.ipvs != nil:
		return nil, errors.New("IPVS counts nothing that is refused, and begins at 0 when it makes a virtual server anew")
	case !a.config.ServiceCounters:
		return nil, errors.New("the daemon runs without --service-counters")
	}
	return kernel.ConnectionsTo(ports)
}

// flows counts the entries of connection tracking of service ports.
func (a *answers) flows(ctx context.Context, ports []*model.ServicePort) (*status.Flows, error) {
	if a.plane.userspace != nil {
		return nil, errors.New("with userspace, no connection is translated")
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	flows := status.NewFlows(ports)
	for _, f := range model.Families {
		err := a.tracked.List(ctx, f, flows.Ports(f), func(e conntrack.Entry) {
			flows.Add(model.VIP{Addr: e.Dest.Addr(), Protocol: e.Protocol, Port: e.Dest.Port()}, e.ReplySource)
		})
		if err != nil {
			return nil, err
		}
	}
	return flows, nil
}

// mostLines is the number of elements of a set that are shown with a Service's rules.
const mostLines = 12

// rules returns the rules of nftables or iptables that connections to a service port meet, as they were programmed last.
func (a *answers) rules(sp *model.ServicePort) (text []string) {
	add := func(name string, lines []string, more int) {
		text = append(text, "  "+name)
		for _, l := range lines {
			text = append(text, "    "+l)
		}
		if more > 0 {
			text = append(text, fmt.Sprintf("    and %d more", more))
		}
	}
	switch {
	case a.plane.nft != nil:
		if rules := a.plane.nft.Ruleset(sp.Family); rules != nil {
			for _, p := range rules.Excerpt(sp.Name, mostLines) {
				kind := "map "
				if p.Chain {
					kind = "chain "
				}
				add(kind+p.Name, p.Lines, p.More)
			}
		}
	case a.plane.iptables != nil:
		if rules := a.plane.iptables.Ruleset(sp.Family); rules != nil {
			for _, p := range rules.Excerpt(sp.Name, mostLines) {
				add("chain "+p.Table+" "+p.Name, p.Lines, p.More)
			}
		}
	}
	return text
}

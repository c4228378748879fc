package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/objects"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/manifest"
)

// routes are all paths of the socket: state, a decision, and doctor's facts. A request takes no lock that a round needs
// for longer than reading a pointer.
func (d *Daemon) routes() map[string]socket.Route {
	return map[string]socket.Route{
		"/v1/status":   d.overview,
		"/v1/services": d.services,
		"/v1/service":  d.service,
		"/v1/explain":  d.explain,
		"/v1/doctor":   d.doctor,
	}
}

func (d *Daemon) doctor(context.Context, url.Values) (any, error) { return d.examine(true), nil }

func (d *Daemon) overview(context.Context, url.Values) (any, error) {
	lines := d.report().Lines
	o := status.Overview{
		Version: buildinfo.Current().Version, Started: d.Started.UTC().Truncate(time.Second), Now: time.Now().UTC(),
		Node: d.nodeName, Backend: d.dataplane.name, With: d.dataplane.with, Why: d.dataplane.why,
		Doctor: report.Total(lines), Findings: report.Bad(lines),
	}
	o.Tracked, o.TrackedMost, _ = nodesetup.TableUse(nodesetup.Options{}) // 0 without connection tracking
	d.view.View().AddTo(&o, d.tracker.Status())
	return o, nil
}

func (d *Daemon) services(_ context.Context, query url.Values) (any, error) {
	view, err := d.programmed()
	if err != nil {
		return nil, err
	}
	text := cmp.Or(query.Get("limit"), "0") // all
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 0 {
		return nil, socket.BadRequest(fmt.Sprintf("limit: %q is not a number from 0 on", text))
	}
	filter := status.Filter{Namespace: query.Get("namespace"), Search: strings.ToLower(query.Get("search"))}
	return view.Services(filter, limit), nil
}

// programmed returns the state after the latest round.
func (d *Daemon) programmed() (*status.View, error) {
	if view := d.view.View(); view.Snapshot != nil {
		return view, nil
	}
	return nil, errUnprogrammed
}

var errUnprogrammed = &socket.Error{
	Status: http.StatusServiceUnavailable,
	Message: "the daemon has not programmed anything yet: it waits for the objects of the cluster; " +
		"vmapd doctor has the reason",
}

// lookTime limits what the daemon reads for an answer about a Service: the API server, or the kernel, may be slow.
const lookTime = 2 * time.Second

// service answers /v1/service: with "tracked", entries of connection tracking are counted; with "rules", the rules
// are shown.
func (d *Daemon) service(ctx context.Context, query url.Values) (any, error) {
	view, err := d.programmed()
	if err != nil {
		return nil, err
	}
	name, err := names.Only(names.Service, query.Get("name"), query.Get("namespace"), view.Names(query.Get("name")))
	if err != nil {
		return nil, socket.NotFound(err.Error() + " among those that the daemon serves: a headless Service, one of type " +
			"ExternalName, and one of another proxy are not; vmapd explain has the reason")
	}
	ports := view.Ports(status.Filter{Namespace: name.Namespace, Name: name.Name})
	found := status.Found{Candidates: func(sp *model.ServicePort) []model.Candidate {
		return d.state.Selection(sp.Name, sp.Family).Candidates
	}}
	note := func(what string, err error) {
		if err != nil {
			found.Notes = append(found.Notes, what+": "+err.Error())
		}
	}
	found.Places, err = d.placesOf(ctx, name, ports)
	note("the pods of endpoints are not known", err)
	found.Counts, err = d.countsTo(ctx, ports)
	note("new connections are not counted", err)
	if query.Has("tracked") {
		found.Flows, err = d.flows(ctx, ports)
		note("entries of connection tracking are not counted", err)
	}
	if query.Has("rules") {
		found.Rules = d.rules
	}
	return view.One(name, found), nil
}

// place are the endpoints of a Service, with their pods, while it has these ports.
type place struct {
	ports []*model.ServicePort
	found map[netip.Addr][]names.Endpoint
}

// mostPlaces is the number of Services of which slices are remembered.
const mostPlaces = 8

// placesOf reads the EndpointSlices of a Service, again when its ports have changed: pods and zones are not in a
// snapshot, and who watches a Service must not cost the API server a list each second.
func (d *Daemon) placesOf(
	ctx context.Context, name model.NamespacedName, ports []*model.ServicePort,
) (map[netip.Addr][]names.Endpoint, error) {
	if known, ok := d.places.Get(name); ok && slices.Equal(known.(place).ports, ports) {
		return known.(place).found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	of := names.Directory{}
	if d.cluster == nil {
		all, err := d.fromFiles()
		if err != nil {
			return nil, err
		}
		of.Slices = slices.DeleteFunc(all.Slices, func(s names.SliceObject) bool {
			return s.Namespace != name.Namespace || s.Labels[model.LabelServiceName] != name.Name
		})
	} else {
		o := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name.Name}
		list, err := d.cluster.Client.EndpointSlices().In(name.Namespace).List(ctx, o)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			of.Slices = append(of.Slices, names.NewSlice(&list.Items[i]))
		}
	}
	found := of.ByAddress()
	d.places.Add(name, place{ports, found}, time.Hour)
	return found, nil
}

// fromFiles returns the objects in the daemon's files.
func (d *Daemon) fromFiles() (*names.Directory, error) {
	o, _, err := manifest.Load(d.Config.From) // the daemon has logged the errors in manifests
	if err != nil {
		return nil, err
	}
	return objects.Of(o), nil
}

// countsTo returns the numbers of new connections to service ports, or the reason for which they are not counted.
func (d *Daemon) countsTo(ctx context.Context, ports []*model.ServicePort) (status.Counts, error) {
	switch {
	case d.dataplane.nft == nil:
		return nil, errors.New("only the backend nftables counts them")
	case !d.Config.Own.ServiceCounters:
		return nil, errors.New("the daemon runs without --service-counters")
	}
	list, err := d.dataplane.nft.Connections(ctx)
	counts := status.Counts{}
	for _, n := range list {
		for _, sp := range ports {
			if sp.Name == n.Name && sp.Family == n.Family {
				counts[sp] = n.Connections
			}
		}
	}
	return counts, err
}

func (d *Daemon) flows(ctx context.Context, ports []*model.ServicePort) (status.Flows, error) {
	if d.dataplane.userspace != nil {
		return nil, errors.New("with userspace, no connection is translated")
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	flows, count := status.NewFlows(ports)
	for _, f := range model.Families {
		err := d.tracked.List(ctx, f, conntrack.Filter{}, func(e *conntrack.Flow) {
			if e.ReplySource != e.Dest && !e.Zone { // it is translated; IPVS sets no status
				count(model.VIP{Addr: e.Dest.Addr(), Protocol: e.Protocol, Port: e.Dest.Port()}, e.ReplySource)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return flows, nil
}

const mostLines = 200

// rules returns what the table has of nftables for a service port.
func (d *Daemon) rules(sp *model.ServicePort) (text []string) {
	if d.dataplane.nft == nil {
		return nil
	}
	rules := d.dataplane.nft.Ruleset(sp.Family)
	if rules == nil {
		return nil
	}
	for line := range strings.Lines(rules.OfPort(sp.Name).String()) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			text = append(text, strings.ReplaceAll(line, "\t", "  "))
		}
	}
	return report.First(text, mostLines)
}

// explain answers /v1/explain: an explanation by the snapshot of the last sync. Names are not in a snapshot, so the
// objects are read for this answer.
func (d *Daemon) explain(ctx context.Context, query url.Values) (any, error) {
	q, err := names.ParseQuery(query)
	if err != nil {
		return nil, socket.BadRequest(err.Error())
	}
	view, err := d.programmed()
	if err != nil {
		return nil, err
	}
	snapshot := view.Snapshot
	q.NodeName = d.nodeName
	found, err := d.readObjects(ctx, q)
	if err != nil {
		return nil, err
	}
	if _, err := found.Node(d.nodeName); err != nil && d.cluster == nil && len(found.Nodes) > 0 {
		return nil, socket.NotFound(fmt.Sprintf("the daemon's %v (start it with --hostname-override NODE)", err))
	}
	in, err := explain.NewInput(found, d.traffic(), q)
	if err != nil {
		return nil, socket.NotFound(err.Error())
	}
	in.Builder, in.Snapshot, in.ByListeners = d.state, snapshot, d.dataplane.userspace != nil
	e := explain.Explain(in)
	differs, notCompared := d.compareWithKernel(ctx, snapshot, in.Decide())
	e.Compare(d.dataplane.name, differs, notCompared, d.late(model.FamilyOf(in.Dest.Addr())))
	return e, nil
}

// late returns what is not programmed yet, "" if that is nothing.
func (d *Daemon) late(f model.Family) string {
	services, endpointSlices := d.state.Pending()
	if err := d.tracker.Status().Families[f].LastError; err != "" {
		return "The last sync failed: " + err
	}
	if n := services + endpointSlices; n > 0 {
		return fmt.Sprintf("%d changes of Services and EndpointSlices are not programmed yet.", n)
	}
	return ""
}

// readObjects reads what a query is about, from the cluster or from files.
func (d *Daemon) readObjects(ctx context.Context, q names.Query) (*names.Directory, error) {
	if d.cluster == nil {
		return d.fromFiles()
	}
	own, err := d.client.Apart() // so that the daemon's lists do not wait
	if err != nil {
		return nil, err
	}
	nodes := []string{q.NodeName}
	for _, ref := range q.Named(names.Node) {
		if ref.Name != q.NodeName {
			nodes = append(nodes, ref.Name)
		}
	}
	found, refused, err := objects.Read(ctx, own, &q, ErrNoPods, nodes...)
	return found, errors.Join(append(refused, err)...)
}

// ErrNoPods is why the daemon explains nothing about names of pods that no EndpointSlice has.
var ErrNoPods = errors.New("the daemon has no permission to read pods; " +
	"--kubeconfig, with credentials that have it, does")

// compareWithKernel returns how the kernel differs from what a connection is to meet, or why that is not known.
func (d *Daemon) compareWithKernel(
	ctx context.Context, s *model.Snapshot, of model.Decision,
) (differs, notCompared string) {
	if of.Dest.Addr().IsLoopback() && d.dataplane.userspace == nil {
		return "", "a listener of vmapd answers on loopback, not a rule"
	}
	const longest = 3 * time.Second
	bounded, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	f := model.FamilyOf(of.Dest.Addr())
	list, err := d.dataplane.Compare(bounded, f, s, of.Port)
	if err != nil {
		return "", err.Error()
	}
	return report.List(list, 1), d.dataplane.byNature(s.Family(f), of)
}

// byNature returns what the backend does otherwise than decided, by its nature, "" if nothing.
func (p *dataplane) byNature(s *model.FamilySnapshot, d model.Decision) string {
	if p.userspace != nil && d.Verdict == model.Dropped && d.Protocol == model.TCP {
		return "known difference of the backend userspace: a TCP connection that is to be dropped is accepted and reset"
	}
	if p.ipvs == nil {
		return ""
	}
	for _, k := range ipvs.Differences {
		if k.Concerns(s, d) {
			return "known difference of the backend IPVS: " + k.What
		}
	}
	return ""
}

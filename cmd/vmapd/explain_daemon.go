package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/manifest"
)

// explain answers /v1/explain: an explanation by the snapshot of the last sync. Names and the reasons
// for unused endpoints are not in a snapshot, so the objects are read again, and only for this answer.
func (a *answers) explain(ctx context.Context, query url.Values) (any, error) {
	request := newAsked(query)
	q, err := request.query()
	if err != nil {
		return nil, socket.BadRequest(err.Error())
	}
	snapshot := a.observers.view.View().Snapshot
	if snapshot == nil {
		return nil, a.in.unprogrammed()
	}
	k := known{config: a.traffic(config.Backend(a.plane.name))}
	q.NodeName = a.nodeName
	if err := a.readObjects(ctx, &k, q); err != nil {
		return nil, err
	}
	in, err := k.input(request, q)
	if err != nil {
		return nil, socket.NotFound(err.Error())
	}
	in.ByListeners = a.plane.userspace != nil
	var own []netip.Addr
	for _, f := range model.Families {
		own = append(own, snapshot.Family(f).NodeAddrs...)
	}
	in.Builder.SetHostAddresses(own)
	now := k.explain(ctx, in)
	in.Snapshot = snapshot
	e := k.explain(ctx, in)
	in.Node = e.Process
	decided, latest := model.Decide(snapshot, in.Connection), model.Decide(in.Builder.Snapshot(), in.Connection)
	d := a.compareWithKernel(ctx, snapshot, decided)
	if latest.Verdict != decided.Verdict || !slices.Equal(latest.Targets, decided.Targets) {
		d.Objects = now.Conclusion
	}
	services, endpoints := a.in.state.Pending()
	d.Pending, d.Error = services+endpoints, a.observers.tracker.Status().Families[model.FamilyOf(in.Dest.Addr())].LastError
	e.Compare(d)
	return e, nil
}

// readObjects reads what a query is about, from the cluster or from files.
func (a *answers) readObjects(ctx context.Context, k *known, q names.Query) error {
	if a.in.cluster == nil {
		objects, _, err := manifest.LoadAll(a.config.From) // the daemon has logged the errors in manifests
		if err == nil {
			k.addManifests(objects)
		}
		return err
	}
	// A client of its own has a limit of requests of its own: the daemon's lists do not wait.
	own, err := informer.Connect(a.config.Client())
	if err != nil {
		return err
	}
	for _, name := range nodesOf(q) {
		n, err := own.Node(ctx, name)
		if err == nil {
			k.Nodes = append(k.Nodes, kube.Node(n))
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get Node %s: %w", name, err)
		}
	}
	k.NoPods = errNoPods
	return reader{own, k}.read(ctx, q)
}

var errNoPods = errors.New("the daemon has no permission to read pods; --kubeconfig, with credentials that have it, does")

// nodesOf are the Node that decides, and those that are named.
func nodesOf(q names.Query) []string {
	list := []string{q.NodeName}
	for _, ref := range []names.Ref{q.From, q.To} {
		if ref.Kind == names.Node && !slices.Contains(list, ref.Name) {
			list = append(list, ref.Name)
		}
	}
	return list
}

// compareWithKernel compares what the kernel has of a snapshot, as doctor does. Rules of other programs are not compared.
func (a *answers) compareWithKernel(ctx context.Context, s *model.Snapshot, d model.Decision) explain.Daemon {
	if d.Dest.Addr().IsLoopback() && a.plane.userspace == nil {
		return explain.Daemon{NotCompared: "a listener of vmapd answers on loopback, not a rule"}
	}
	const longest = 3 * time.Second
	bounded, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	f := model.FamilyOf(d.Dest.Addr())
	out := explain.Daemon{Compared: a.plane.compared(d)}
	list, count, err := a.plane.differences(bounded, f, s)
	if err != nil {
		return explain.Daemon{NotCompared: err.Error()}
	}
	if a.plane.userspace != nil {
		to := " " + vipOf(d).String() + " "
		list = slices.DeleteFunc(list, func(line string) bool { return !strings.Contains(line, to) })
		count = len(list)
	}
	if count > 0 {
		out.Kernel = list[0]
		if count > 1 {
			out.Kernel += fmt.Sprintf(" and %d more", count-1)
		}
	}
	out.NotCompared = a.plane.byNature(s.Family(f), d)
	if out.Remembered, err = a.remembered(d); err != nil {
		a.log.LogAttrs(ctx, slog.LevelWarn, "the kernel's session affinity can't be read for an explanation", slog.Any("err", err))
	}
	return out
}

func vipOf(d model.Decision) model.VIP {
	return model.VIP{Addr: d.Dest.Addr(), Protocol: d.Protocol, Port: d.Dest.Port()}
}

// compared says what of the kernel is compared for a decision.
func (p *dataplane) compared(d model.Decision) string {
	switch {
	case p.userspace != nil:
		return "vmapd's listener at " + vipOf(d).String()
	case p.iptables != nil:
		return "vmapd's rules in iptables"
	case p.ipvs != nil:
		return "the virtual servers, the ipsets, and vmapd's rules in iptables"
	case d.Dest.Addr().Is4():
		return "nftables table ip vmapd"
	}
	return "nftables table ip6 vmapd"
}

// byNature returns what the backend does otherwise than decided, by its nature, "" if nothing.
func (p *dataplane) byNature(s *model.FamilySnapshot, d model.Decision) string {
	if p.ipvs != nil {
		for _, known := range ipvs.Differences {
			if known.Concerns != nil && known.Concerns(s, d) {
				return "the backend IPVS differs by its nature: " + known.What
			}
		}
	}
	if p.userspace != nil {
		for _, known := range userspace.Differences {
			if known.Concerns != nil && known.Concerns(s, d) {
				return "the backend userspace differs by its nature: " + known.What
			}
		}
	}
	return ""
}

// remembered returns the endpoint that the kernel remembers for a client, or nil if the Service has no
// session affinity, and with IPVS and userspace.
func (a *answers) remembered(d model.Decision) (*explain.Remembered, error) {
	if d.Verdict != model.Forwarded || d.Port == nil || d.Port.Affinity == 0 {
		return nil, nil
	}
	var to netip.AddrPort
	var left time.Duration
	var ok bool
	var err error
	switch {
	case a.plane.nft != nil:
		list := d.Frontend.TrafficPolicy
		if d.Why == model.FromPodInside || d.Why == model.FromNodeInside {
			list = model.Cluster
		}
		to, left, ok, err = a.plane.nft.Remembered(d.Port.Name, list, d.Source)
	case a.plane.iptables != nil:
		var endpoints []netip.AddrPort
		for _, t := range d.Targets {
			endpoints = append(endpoints, t.Addr)
		}
		to, left, ok, err = a.plane.iptables.Remembered(d.Port, endpoints, d.Source)
	default:
		return nil, nil
	}
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return &explain.Remembered{}, nil
	}
	used := slices.ContainsFunc(d.Targets, func(t model.Target) bool { return t.Addr == to })
	return &explain.Remembered{Endpoint: to.String(), Left: left.Round(time.Second), Used: used}, nil
}

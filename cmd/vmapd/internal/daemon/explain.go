package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/objects"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/manifest"
)

// explain answers /v1/explain: an explanation by the snapshot of the last sync. Names and the reasons
// for unused endpoints are not in a snapshot, so the objects are read for this answer.
func (d *Daemon) explain(ctx context.Context, query url.Values) (any, error) {
	q, err := names.ParseQuery(query)
	if err != nil {
		return nil, socket.BadRequest(err.Error())
	}
	snapshot := d.view.View().Snapshot
	if snapshot == nil {
		return nil, d.unprogrammed()
	}
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
	in.ByListeners = d.dataplane.userspace != nil
	var own []netip.Addr
	for _, f := range model.Families {
		own = append(own, snapshot.Family(f).NodeAddrs...)
	}
	in.Builder.SetHostAddresses(own)
	in.Snapshot = snapshot
	e := explain.Explain(in)
	compared := d.compareWithKernel(ctx, snapshot, in.Decide())
	services, endpoints := d.state.Pending()
	compared.Pending = services + endpoints
	compared.Error = d.tracker.Status().Families[model.FamilyOf(in.Dest.Addr())].LastError
	e.Compare(compared)
	return e, nil
}

// readObjects reads what a query is about, from the cluster or from files.
func (d *Daemon) readObjects(ctx context.Context, q names.Query) (*names.Directory, error) {
	if d.cluster == nil {
		o, _, err := manifest.Load(d.Config.From) // the daemon has logged the errors in manifests
		if err != nil {
			return nil, err
		}
		return objects.Of(o), nil
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

// compareWithKernel compares what the kernel has of a snapshot, as doctor does.
func (d *Daemon) compareWithKernel(ctx context.Context, s *model.Snapshot, of model.Decision) explain.Daemon {
	if of.Dest.Addr().IsLoopback() && d.dataplane.userspace == nil {
		return explain.Daemon{NotCompared: "a listener of vmapd answers on loopback, not a rule"}
	}
	const longest = 3 * time.Second
	bounded, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	f := model.FamilyOf(of.Dest.Addr())
	list, count, err := d.dataplane.differences(bounded, f, s, &of)
	if err != nil {
		return explain.Daemon{NotCompared: err.Error()}
	}
	out := explain.Daemon{Backend: d.dataplane.name, NotCompared: d.dataplane.byNature(s.Family(f), of)}
	if count > 0 {
		out.Kernel = list[0]
	}
	if count > 1 {
		out.Kernel += fmt.Sprintf(" and %d more", count-1)
	}
	return out
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

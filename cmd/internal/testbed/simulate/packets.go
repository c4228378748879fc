package simulate

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// connections is how many packets are tried where the table is none that a snapshot has.
const connections = 6

// protocolOf are nftables' numbers of families.
var protocolOf = [...]byte{model.IPv4: unix.NFPROTO_IPV4, model.IPv6: unix.NFPROTO_IPV6}

// traffic is a table with packets.
type traffic struct {
	*world
	family model.Family
	table  *nft.Table          // nil: there is none
	sims   []*nftsim.Simulator // for each possible snapshot, which says what the node's addresses are
}

// packets sends some packets through a table. Each must go where one of the possible snapshots sends it.
func (w *world) packets(f model.Family, table *nft.Table, n int) {
	t, err := w.traffic(f, table)
	if err != nil {
		w.fail("the %v table is not sound: %w", f, err)
		return
	}
	for range n {
		s := cmp.Or(w.between[w.probes.IntN(len(w.between))], w.between[len(w.between)-1])
		if s == nil {
			return
		}
		c := modeltest.Connection(w.probes, s)
		if model.FamilyOf(c.Dest.Addr()) != f || c.Dest.Addr().IsLoopback() || w.changesSides(f, c.Source) {
			continue
		}
		if why := t.connect(c); why != "" {
			for i, s := range w.between {
				if s != nil {
					w.note("the table differs from snapshot %d of %d by %v", i+1, len(w.between), difference(table, s.Family(f), nil))
				}
			}
			w.fail("%v: %+v: %s", f, c, why)
			return
		}
	}
}

// changesSides reports whether an address is the node's by some of the possible snapshots only. A packet from elsewhere
// never has the node's address: with such a source, it is possible by one snapshot and not by another.
func (w *world) changesSides(f model.Family, a netip.Addr) bool {
	sides := map[bool]bool{}
	for _, s := range w.between {
		if s != nil {
			sides[slices.Contains(s.Family(f).NodeAddrs, a)] = true
		}
	}
	return len(sides) > 1
}

// traffic makes a table ready for packets, with the clients that the kernel remembers now.
func (w *world) traffic(f model.Family, table *nft.Table) (*traffic, error) {
	t := &traffic{world: w, family: f}
	if table == nil {
		return t, nil
	}
	whole := *table
	whole.Elements = maps.Clone(table.Elements)
	for _, set := range table.Sets {
		if !set.Dynamic {
			continue
		}
		list := nft.Elements{}
		for key, data := range w.kernel.Elements(protocolOf[f], nft.TableName, set.Name) {
			list[key] = nft.Element{Key: key, Data: data}
		}
		whole.Elements[set.Name] = list
	}
	t.table = &whole
	for _, s := range w.between {
		var local []netip.Addr
		if s != nil {
			local = s.Family(f).NodeAddrs
		}
		sim, err := nftsim.New(t.table, local...)
		if err != nil {
			return nil, err
		}
		t.sims = append(t.sims, sim)
	}
	return t, nil
}

// unchanged is the outcome of a connection that no table changes.
func unchanged(c model.Connection) modeltest.Outcome {
	return modeltest.Outcome{Verdict: model.Forwarded, To: map[netip.AddrPort]modeltest.Arrival{c.Dest: {Share: 1}}}
}

// connect makes a connection. It says why it goes where no snapshot sends it, or returns "".
func (t *traffic) connect(c model.Connection) string {
	var reasons []string
	for i, s := range t.between {
		got := unchanged(c)
		if t.table != nil {
			out, err := t.sims[i].Run(c)
			if err != nil {
				return err.Error()
			}
			got = out.Outcome
		}
		why := t.disagrees(i, c, got)
		if why == "" {
			t.remember(s, c, got)
			return ""
		}
		reasons = append(reasons, why)
	}
	return strings.Join(reasons, "; ")
}

// disagrees says why an outcome is not that of a possible snapshot, or returns "". Without a snapshot, there is
// no table. Unless the table is settled, an endpoint's connection to itself may have the node's address as
// its source too soon or too late: without, it never worked.
func (t *traffic) disagrees(i int, c model.Connection, got modeltest.Outcome) string {
	want := unchanged(c)
	if s := t.between[i]; s != nil {
		d := model.Decide(s, c)
		if to, gone := t.comesBack(&d); gone && t.mayComeBack(&d, to, got) {
			return ""
		}
		want = modeltest.Expected(d)
	}
	for _, o := range []modeltest.Outcome{want, got} {
		for to, a := range o.To {
			a.Masquerade = a.Masquerade && (len(t.between) == 1 || to.Addr() != c.Source)
			o.To[to] = a
		}
	}
	return want.Disagrees(got)
}

// comesBack leaves of a decision's targets only the one that the kernel remembers for the client. It reports
// whether the kernel remembers one that is not among them, and which.
func (t *traffic) comesBack(d *model.Decision) (to netip.AddrPort, gone bool) {
	remembers := d.Port != nil && d.Port.Affinity > 0 && d.Why != model.LoopbackForwarder
	if t.table == nil || d.Verdict != model.Forwarded || !remembers {
		return to, false
	}
	e, ok := t.table.Elements[nft.AffinityMap(d.Port.Name, d.TrafficPolicy)][string(nft.AppendAddr(nil, d.Source))]
	if !ok {
		return to, false
	}
	to, _ = nft.Endpoint(e.Data)
	i := slices.IndexFunc(d.Targets, func(t model.Target) bool { return t.Addr == to })
	if i >= 0 {
		d.Targets = d.Targets[i : i+1]
	}
	return to, i < 0
}

// remember chooses one of the places where a packet can go, and notes it in the maps of its path.
func (t *traffic) remember(s *model.Snapshot, c model.Connection, got modeltest.Outcome) {
	if s == nil || got.Verdict != model.Forwarded {
		return
	}
	all := slices.SortedFunc(maps.Keys(got.To), netip.AddrPort.Compare)
	to := all[t.probes.IntN(len(all))]
	t.track(c, to)
	for _, name := range got.To[to].Remembered {
		client, data := nft.AppendAddr(nil, c.Source), nft.AppendPort(nft.AppendAddr(nil, to.Addr()), to.Port())
		if !t.kernel.Update(protocolOf[t.family], nft.TableName, name, client, data, t.affinityTime(s, c)) {
			t.fail("the kernel has no map %s", name)
		}
		for _, sim := range t.sims {
			if err := sim.Remember(name, c.Source, to); err != nil {
				t.fail("map %s: %w", name, err)
			}
		}
		// Elements keep what they have, as the kernel does.
		t.table.Add(name, nft.Element{Key: string(client), Data: string(data)})
	}
}

// affinityTime returns for how long a client is remembered: as the snapshot says or, where that has no such Service but
// the connection reaches the same endpoint without it, as another one says.
func (t *traffic) affinityTime(s *model.Snapshot, c model.Connection) time.Duration {
	for _, s := range append([]*model.Snapshot{s}, t.between...) {
		if s == nil {
			continue
		}
		if port := model.Decide(s, c).Port; port != nil && port.Affinity > 0 {
			return port.Affinity
		}
	}
	t.fail("a client is remembered that no Service remembers: %+v", c)
	return time.Second
}

// mustHavePurged checks that no client is remembered with an endpoint that is gone. One that a list lacked is deleted
// by its own next packet.
func (w *world) mustHavePurged(f model.Family, s *model.FamilySnapshot) {
	gone := map[string]string{}
	if w.lacked.Load() {
		gone = w.kernel.Elements(protocolOf[f], nft.TableName, nft.GoneEndpoints)
	}
	for sp := range s.ServicePorts() {
		for _, l := range model.TrafficPolicies {
			keep := map[string]bool{}
			for e := range sp.In(l) {
				keep[string(nft.AppendPort(nft.AppendAddr(nil, e.Addr.Addr()), e.Addr.Port()))] = true
			}
			for client, endpoint := range w.kernel.Elements(protocolOf[f], nft.TableName, nft.AffinityMap(sp.Name, l)) {
				if _, isGone := gone[endpoint]; keep[endpoint] || isGone {
					continue
				}
				to, _ := nft.Endpoint(endpoint)
				w.fail("client %x of %v is still remembered with %v, which is gone", client, sp.Name, to)
			}
		}
	}
}

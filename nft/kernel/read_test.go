package kernel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
)

// contents are what a table has, to compare.
type contents struct {
	Sets     []nft.Set
	Chains   []string
	Elements map[string]map[string]nft.Element
}

func contentsOf(t testing.TB, c *conn, s *model.FamilySnapshot) (*nft.Table, contents) {
	t.Helper()
	table, err := c.readTableOnce(s.Family)
	if err != nil {
		t.Fatal(err)
	}
	if table == nil {
		return nil, contents{}
	}
	all := contents{Sets: table.Sets, Elements: map[string]map[string]nft.Element{}}
	for _, chain := range table.Chains {
		all.Chains = append(all.Chains, chain.Name)
		for _, r := range chain.Rules {
			all.Chains = append(all.Chains, r.Text(table.Family))
		}
	}
	for set := range table.Elements {
		all.Elements[set] = elementsIn(table, set)
	}
	return table, all
}

// elementsIn are the elements of a set, by key.
func elementsIn(t *nft.Table, set string) map[string]nft.Element {
	all := map[string]nft.Element{}
	for key := range t.Keys(set) {
		all[key], _ = t.Get(set, key)
	}
	return all
}

// aBigBuilder has Services with hundreds of endpoints, in slots that no
// fresh compilation would choose, and all maps of endpoints.
func aBigBuilder(t testing.TB, b *Backend) *model.Builder {
	t.Helper()
	const replicas = 450
	builder := exampleBuilder()
	builder.SetService(model.Service{
		NamespacedName: model.NamespacedName{Namespace: "default", Name: "local"},
		Type:           "LoadBalancer", ExternalTrafficPolicy: "Local",
		ClusterIPs:  []string{"172.30.0.43", "fd00:172:30::43"},
		ExternalIPs: []string{"192.168.99.12", "fd00:192:168:99::12"},
		Ports:       []model.Port{{Name: "http", Port: 80, NodePort: 30081}},
	})
	for _, family := range []string{"IPv4", "IPv6"} {
		local := exampleSlice(family, 3)
		local.NamespacedName.Name, local.Labels = "local-"+family, map[string]string{model.LabelServiceName: "local"}
		builder.SetEndpointSlice(local)
		builder.SetEndpointSlice(exampleSlice(family, replicas))
	}
	apply(t, b, builder.Snapshot())
	for _, family := range []string{"IPv4", "IPv6"} {
		moved := exampleSlice(family, replicas)
		moved.Endpoints = moved.Endpoints[replicas/2:]
		builder.SetEndpointSlice(moved)
	}
	apply(t, b, builder.Snapshot())
	for _, family := range []string{"IPv4", "IPv6"} {
		builder.SetEndpointSlice(exampleSlice(family, replicas))
	}
	apply(t, b, builder.Snapshot())
	return builder
}

// ofFamily is what the changes of TestWhatDiffersIsRepaired need to know.
type ofFamily struct {
	f             model.Family
	vip, external netip.Addr
	all           map[string]map[string]nft.Element
}

func (o *ofFamily) frontend(addr netip.Addr) []byte {
	key := nft.AppendProto(nft.AppendAddr(nil, addr), model.TCP)
	return nft.AppendPort(key, 80)
}

// slot is an element of the map of endpoints as it is, or would be.
func (o *ofFamily) slot(set string, addr netip.Addr, slot uint32) nft.Element {
	key := string(nft.AppendSlot(o.frontend(addr), slot))
	if e, ok := o.all[set][key]; ok {
		return e
	}
	return nft.Element{Key: key, Data: string(nft.AppendPort(nft.AppendAddr(nil, podOf(o.f, 2).Addr()), 1))}
}

func ops(set string, list ...nft.Element) []batch.Elements {
	return []batch.Elements{{Set: set, List: list}}
}

// replace makes a batch that exchanges an element for another with its key.
func replace(set string, old nft.Element, change func(e *nft.Element)) *batch.Batch {
	now := old
	change(&now)
	return &batch.Batch{Delete: ops(set, old), Add: ops(set, now)}
}

// Whatever differs from what the table should have takes few operations.
func TestWhatDiffersIsRepaired(t *testing.T) {
	const beyond = 2000 // slots
	for _, tt := range []struct {
		name   string
		change func(o *ofFamily) *batch.Batch
		writes int // operations to repair that
	}{
		{"nothing", func(*ofFamily) *batch.Batch { return &batch.Batch{} }, 0},
		{"a slot more", func(o *ofFamily) *batch.Batch {
			return &batch.Batch{Add: ops(nft.Endpoints, o.slot(nft.Endpoints, o.vip, beyond))}
		}, 1},
		{"a slot of a frontend that is not there", func(o *ofFamily) *batch.Batch {
			return &batch.Batch{Add: ops(nft.LocalEndpoints, o.slot(nft.LocalEndpoints, o.vip.Next().Next().Next(), 0))}
		}, 1},
		{"a slot less", func(o *ofFamily) *batch.Batch {
			return &batch.Batch{Delete: ops(nft.Endpoints, o.slot(nft.Endpoints, o.external, 100))}
		}, 1},
		{"a slot more and another less", func(o *ofFamily) *batch.Batch {
			return &batch.Batch{
				Add:    ops(nft.Endpoints, o.slot(nft.Endpoints, o.vip, beyond)),
				Delete: ops(nft.Endpoints, o.slot(nft.Endpoints, o.external, 100)),
			}
		}, 2},
		{"another endpoint", func(o *ofFamily) *batch.Batch {
			return replace(nft.Endpoints, o.slot(nft.Endpoints, o.external, 7), func(e *nft.Element) {
				e.Data = string(nft.AppendPort(nft.AppendAddr(nil, podOf(o.f, 4).Addr()), 9))
			})
		}, 2},
		{"another order of one frontend's", func(o *ofFamily) *batch.Batch {
			a, b := o.slot(nft.Endpoints, o.external, 3), o.slot(nft.Endpoints, o.external, 300)
			crossed := []nft.Element{{Key: a.Key, Data: b.Data}, {Key: b.Key, Data: a.Data}}
			return &batch.Batch{Delete: ops(nft.Endpoints, a, b), Add: ops(nft.Endpoints, crossed...)}
		}, 4},
		{"another verdict", func(o *ofFamily) *batch.Batch {
			return replace(nft.ServiceIPs, o.all[nft.ServiceIPs][string(o.frontend(o.vip))], func(e *nft.Element) {
				e.Verdict = nft.Verdict{Kind: nft.DropPacket}
			})
		}, 2},
		{"another comment", func(o *ofFamily) *batch.Batch {
			return replace(nft.ServiceIPs, o.all[nft.ServiceIPs][string(o.frontend(o.vip))], func(e *nft.Element) {
				e.Comment = "somebody's own words, which are longer than those that were there"
			})
		}, 2},
		{"a frontend less", func(o *ofFamily) *batch.Batch {
			return &batch.Batch{Delete: ops(nft.ServiceIPs, o.all[nft.ServiceIPs][string(o.frontend(o.vip))])}
		}, 1},
		{"a cluster IP more", func(o *ofFamily) *batch.Batch {
			return &batch.Batch{Add: ops(nft.ClusterIPs, nft.Element{Key: string(nft.AppendAddr(nil, o.external))})}
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetNS(t)
			b := open(t, n)
			snapshot := aBigBuilder(t, b).Snapshot()
			for _, f := range model.Families {
				s := snapshot.Family(f)
				o := &ofFamily{f: f, vip: netip.MustParseAddr("172.30.0.41"), external: netip.MustParseAddr("192.168.99.11")}
				if f == model.IPv6 {
					o.vip, o.external = netip.MustParseAddr("fd00:172:30::41"), netip.MustParseAddr("fd00:192:168:99::11")
				}
				_, before := contentsOf(t, b.conn, s)
				o.all = before.Elements
				changes := tt.change(o)
				changes.Family = f
				if err := b.conn.carryOut(changes, 0, elementsPerMessage); err != nil {
					t.Fatal(err)
				}
				table, wanted := contentsOf(t, b.conn, s)
				if changed := !cmp.Equal(before, wanted); changed != (changes.Len() > 0) {
					t.Errorf("%v: what is read is another: %v", f, changed)
				}
				repair := batch.DiffTable(table, retrying.Adopt(table, nil, s))
				if writes := repair.Len() - len(repair.DeleteChains); writes != tt.writes {
					t.Errorf("%v: %d operations, want %d", f, writes, tt.writes)
				}
			}
			b.Resync()
			apply(t, b, snapshot)
			mustMatch(t, n, snapshot)
		})
	}
}

// countedSocket counts how often something is sent.
type countedSocket struct {
	Socket
	sent int
}

func (s *countedSocket) Send(b []byte) error {
	s.sent++
	return s.Socket.Send(b)
}

// A list that lacks something is read again, but not for ever. Without knowing how many
// elements there are, it is taken as it is.
func TestAListIsReadUntilNothingIsMissing(t *testing.T) {
	b := open(t, newNetNS(t))
	s := aBigBuilder(t, b).Snapshot().Family(model.IPv4)
	table, want := contentsOf(t, b.conn, s)
	right := table.Len(nft.Endpoints)
	asked := &countedSocket{Socket: b.conn.socket}
	b.conn.socket = asked
	for count, passes := range map[int]int{0: 1, right: 1, right + 1: listPasses, right - 1: listPasses} {
		asked.sent = 0
		if err := b.conn.listElements(table, nft.DeclarationOf(nft.Endpoints), count); err != nil {
			t.Fatal(err)
		}
		if got := asked.sent; got != passes {
			t.Errorf("of %d elements, %d are there: read %d times, want %d", count, right, got, passes)
		}
		if diff := cmp.Diff(want.Elements[nft.Endpoints], elementsIn(table, nft.Endpoints)); diff != "" {
			t.Errorf("of %d elements (-want +got):\n%.2000s", count, diff)
		}
	}
}

// The kernel is asked for the slots of each frontend. Where that is not all, it lists them.
func TestSlotsAreAskedFor(t *testing.T) {
	b := open(t, newNetNS(t))
	s := aBigBuilder(t, b).Snapshot().Family(model.IPv4)
	table, want := contentsOf(t, b.conn, s)
	right := table.Len(nft.Endpoints)
	if right < 2*slotsPerQuestion {
		t.Fatalf("%d slots are one question", right)
	}
	for _, set := range []string{nft.Endpoints, nft.LocalEndpoints, nft.NodePortEndpoints, nft.NodePortLocalEndpoints} {
		for _, missing := range []int{0, 1} {
			count := len(want.Elements[set]) + missing
			if got := b.conn.askSlots(table, nft.DeclarationOf(set), count); got != (missing == 0) {
				t.Errorf("%s: all of %d were read: %v", set, count, got)
			}
			if diff := cmp.Diff(want.Elements[set], elementsIn(table, set)); diff != "" {
				t.Errorf("%s (-want +got):\n%.2000s", set, diff)
			}
		}
	}
	gap := ops(nft.Endpoints, want.Elements[nft.Endpoints][firstKey(want.Elements[nft.Endpoints])])
	if err := b.conn.carryOut(&batch.Batch{Family: s.Family, Delete: gap}, 0, elementsPerMessage); err != nil {
		t.Fatal(err)
	}
	if b.conn.askSlots(table, nft.DeclarationOf(nft.Endpoints), right-1) {
		t.Errorf("slots behind an empty one were read: %d of %d", table.Len(nft.Endpoints), right-1)
	}
}

// firstKey returns that of the first slot of a frontend.
func firstKey(elements map[string]nft.Element) string {
	for key := range elements {
		if strings.HasSuffix(key, string(nft.AppendSlot(nil, 0))) {
			return key
		}
	}
	return ""
}

// FuzzElements reads messages that make no sense.
func FuzzElements(f *testing.F) {
	for _, set := range []string{nft.Endpoints, nft.ServiceIPs, nft.ServiceCIDRs, nft.SourceRanges(model.TCP)} {
		element := func(add func(*messages)) {
			var m messages
			list := m.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
			at := m.nest(unix.NFTA_LIST_ELEM)
			add(&m)
			m.close(at)
			m.close(list)
			f.Add(set, m.b)
		}
		element(func(m *messages) { m.value(unix.NFTA_SET_ELEM_KEY, "0123456789ab") })
		for kind := range uint16(12) { // an attribute of a type that is one of those, or not
			element(func(m *messages) {
				at := m.nest(kind)
				m.b = append(m.b, 5, 0, 1, 0, 0xff, 0xff, 0xff, 0xfc)
				m.close(at)
			})
		}
	}
	f.Fuzz(func(_ *testing.T, set string, message []byte) {
		for n := range len(message) + 1 {
			table := emptyTable()
			r := newElementReader(table, nft.DeclarationOf(set))
			if r.add(message[:n]) != nil {
				continue
			}
			r.end()
			for key := range table.Keys(set) {
				_, ok := table.Get(set, key)
				_ = fmt.Sprint(ok, key)
			}
		}
	})
}

func emptyTable() *nft.Table {
	return &nft.Table{Family: model.IPv4, Elements: map[string]nft.Elements{}, Slots: map[string]*nft.Slots{}}
}

func TestSlotsAreReadFromBothOfTheirTypes(t *testing.T) {
	want := []nft.Type{nft.Addr, nft.Slot}
	for _, slot := range []uint32{datatypeMark, datatypeInteger} {
		if diff := cmp.Diff(want, readTypes(model.IPv4, datatypeIPAddr<<datatypeBits|slot)); diff != "" {
			t.Errorf("slots of type %d (-want +got):\n%s", slot, diff)
		}
	}
}

package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
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
	first := want.Elements[nft.Endpoints][firstKey(want.Elements[nft.Endpoints])]
	gap := []batch.Elements{{Set: nft.Endpoints, List: []nft.Element{first}}}
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
	for _, slot := range []nftables.SetDatatype{nftables.TypeMark, nftables.TypeInteger} {
		types := nftables.MustConcatSetType(nftables.TypeIPAddr, slot)
		testaid.Equal(t, "type "+slot.Name, want, readTypes(model.IPv4, types.GetNFTMagic()))
	}
}

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/compile"
)

func openCounting(t testing.TB, n netns) *Backend {
	t.Helper()
	return openAs(t, Options{NetNS: n.fd(), Counters: true})
}

// counts are connections by family and service port.
type counts map[string]uint64

func connections(t testing.TB, b *Backend) counts {
	t.Helper()
	list, err := b.Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return asCounts(t, list)
}

func asCounts(t testing.TB, list []Count) counts {
	t.Helper()
	all := counts{}
	for _, c := range list {
		key := fmt.Sprintf("%v %v/%v", c.Family, c.Name, c.Name.Protocol)
		if _, ok := all[key]; ok {
			t.Errorf("%s is there twice", key)
		}
		all[key] = c.Connections
	}
	return all
}

func (n counts) mustBe(t testing.TB, what string, want counts) {
	t.Helper()
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// countedService has all that leads connections elsewhere: node ports, external addresses
// and, for some, affinity and traffic policies.
func countedService(name string, last int, change func(*model.Service)) (model.Service, []model.EndpointSlice) {
	s := model.Service{
		NamespacedName: model.NamespacedName{Namespace: "default", Name: name},
		ClusterIPs:     []string{fmt.Sprintf("172.30.0.%d", last), fmt.Sprintf("fd00:172:30::%d", last)},
		ExternalIPs:    []string{fmt.Sprintf("192.168.99.%d", last), fmt.Sprintf("fd00:192:168:99::%d", last)},
		Ports: []model.Port{
			{Name: "tcp", Protocol: "TCP", Port: 80, NodePort: int32(30000 + last)},
			{Name: "udp", Protocol: "UDP", Port: 80, NodePort: int32(30000 + last)},
		},
	}
	if change != nil {
		change(&s)
	}
	return s, countedSlices(name, 2, 3)
}

func countedSlices(name string, pods ...int) []model.EndpointSlice {
	var list []model.EndpointSlice
	for _, f := range model.Families {
		slice := model.EndpointSlice{
			NamespacedName: model.NamespacedName{Namespace: "default", Name: name + "-" + f.String()},
			Labels:         map[string]string{model.LabelServiceName: name}, AddressType: f.String(),
			Ports: []model.SlicePort{
				{Name: new("tcp"), Protocol: new("TCP"), Port: new(int32(8080))},
				{Name: new("udp"), Protocol: new("UDP"), Port: new(int32(8080))},
			},
		}
		for _, pod := range pods {
			slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
				Addresses: []string{podOf(f, pod).Addr().String()}, NodeName: "node-1",
			})
		}
		list = append(list, slice)
	}
	return list
}

func countedBuilder(names map[string]func(*model.Service)) *model.Builder {
	b := model.NewBuilder(model.Config{
		NodeName: "node-1", NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/41")}},
	})
	b.SetNode(model.Node{Name: "node-1", Addresses: []string{"192.168.0.2", "fd00:192:168::2"}})
	for i, name := range []string{"plain", "sticky", "local", "both"} {
		if change, ok := names[name]; ok {
			s, list := countedService(name, 41+i, change)
			b.SetService(s)
			for _, slice := range list {
				b.SetEndpointSlice(slice)
			}
		}
	}
	return b
}

// Each connection is counted once, whatever its address, and none of its later packets.
func TestConnectionsAreCounted(t *testing.T) {
	affinity := func(s *model.Service) { s.SessionAffinity = "ClientIP" }
	local := func(s *model.Service) { s.ExternalTrafficPolicy = "Local" }
	builder := countedBuilder(map[string]func(*model.Service){
		"plain": nil, "sticky": affinity, "local": local,
		"both": func(s *model.Service) { affinity(s); local(s) },
	})
	w := newWorld(t)
	b := openCounting(t, w.node)
	apply(t, b, builder.Snapshot())
	want := counts{}
	for i, name := range []string{"plain", "sticky", "local", "both"} {
		last := 41 + i
		for _, f := range model.Families {
			addrs := []string{
				fmt.Sprintf("172.30.0.%d:80", last), fmt.Sprintf("192.168.99.%d:80", last), fmt.Sprintf("192.168.0.2:%d", 30000+last),
			}
			if f == model.IPv6 {
				addrs = []string{
					fmt.Sprintf("[fd00:172:30::%d]:80", last), fmt.Sprintf("[fd00:192:168:99::%d]:80", last), fmt.Sprintf("[fd00:192:168::2]:%d", 30000+last),
				}
			}
			for j, addr := range addrs {
				tcp, udp := 3+j, 2+j
				w.node.connections(t, tcp, "tcp", addr)
				w.outside.connections(t, 2*tcp, "tcp", addr)
				w.node.connections(t, udp, "udp", addr)
				w.outside.connections(t, 3*udp, "udp", addr)
				want[fmt.Sprintf("%v default/%s:tcp/tcp", f, name)] += uint64(3 * tcp)
				want[fmt.Sprintf("%v default/%s:udp/udp", f, name)] += uint64(4 * udp)
				connections(t, b).mustBe(t, fmt.Sprintf("after %s", addr), zeros(want))
			}
		}
	}
	if r := b.Ruleset(model.IPv4); r == nil || len(r.Excerpt(model.ServicePortName{NamespacedName: model.NamespacedName{Namespace: "default", Name: "plain"}, Port: "tcp", Protocol: model.TCP}, 1)) == 0 {
		t.Error("the ruleset that was applied is not known")
	}
}

// zeros adds the service ports that nobody has connected to yet.
func zeros(n counts) counts {
	all := counts{}
	for _, f := range model.Families {
		for _, name := range []string{"plain", "sticky", "local", "both"} {
			for _, p := range []string{"tcp", "udp"} {
				key := fmt.Sprintf("%v default/%s:%s/%s", f, name, p, p)
				all[key] = n[key]
			}
		}
	}
	return all
}

func TestCountsOutliveChangesAndRestarts(t *testing.T) {
	builder := countedBuilder(map[string]func(*model.Service){"plain": nil})
	w := newWorld(t)
	b := openCounting(t, w.node)
	apply(t, b, builder.Snapshot())
	const tcp4, udp4 = "IPv4 default/plain:tcp/tcp", "IPv4 default/plain:udp/udp"
	want := counts{tcp4: 0, udp4: 0, "IPv6 default/plain:tcp/tcp": 0, "IPv6 default/plain:udp/udp": 0}
	connect := func(what string) {
		t.Helper()
		w.outside.connections(t, 2, "tcp", "172.30.0.41:80")
		w.outside.connections(t, 3, "tcp", "192.168.0.2:30041")
		want[tcp4] += 5
		connections(t, b).mustBe(t, what, want)
	}
	connect("at first")
	for _, pods := range [][]int{{2}, {2, 3, 4}, {4}} {
		for _, s := range countedSlices("plain", pods...) {
			builder.SetEndpointSlice(s)
		}
		apply(t, b, builder.Snapshot())
		connect(fmt.Sprintf("with pods %v", pods))
	}

	for _, s := range countedSlices("plain") {
		builder.SetEndpointSlice(s)
	}
	apply(t, b, builder.Snapshot())
	w.node.refused(t, 4, "tcp", "172.30.0.41:80")
	want[tcp4] += 4
	connections(t, b).mustBe(t, "refused ones", want)

	for _, s := range countedSlices("plain", 2) {
		builder.SetEndpointSlice(s)
	}
	apply(t, b, builder.Snapshot())
	other, list := countedService("both", 44, nil)
	builder.SetService(other)
	for _, s := range list {
		builder.SetEndpointSlice(s)
	}
	apply(t, b, builder.Snapshot())
	builder.DeleteService(other.NamespacedName)
	apply(t, b, builder.Snapshot())
	connect("after another Service came and went")

	b.Resync()
	apply(t, b, builder.Snapshot())
	connect("after a comparison")
	for _, restart := range []string{"one", "another"} { // the first one deletes chains that nothing needs any more
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = openCounting(t, w.node)
		apply(t, b, builder.Snapshot())
		connect("after " + restart + " restart")
	}
	if got := b.Stats(model.IPv4).Operations + b.Stats(model.IPv6).Operations; got != 0 {
		t.Errorf("the restart wrote %d operations, want none", got)
	}
}

func TestListingWithCountersEqualsThatOfTheText(t *testing.T) {
	byNetlink, byText := newNetNS(t), newNetNS(t)
	s := exampleBuilder().Snapshot()
	apply(t, openCounting(t, byNetlink), s)
	o := compile.Options{Counters: true}
	byText.nft(t, o.Compile(nil, s.Family(model.IPv4)).Table().String()+o.Compile(nil, s.Family(model.IPv6)).Table().String(), "-f", "-")
	want := byText.nft(t, "", "list", "ruleset")
	got := withoutOwner(byNetlink.nft(t, "", "list", "ruleset"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listing after nft -f (-), after netlink (+):\n%s", diff)
	}
	if !strings.Contains(got, `tcp . 30080 counter packets 0 bytes 0 comment "default/web:http"`) {
		t.Errorf("no counter of a node port in:\n%s", got)
	}

	// A listing that is loaded elsewhere goes on counting from where it was, unless the kernel knows owners.
	loaded := newNetNS(t)
	loaded.nft(t, strings.ReplaceAll(got, "tcp . 30080 counter packets 0", "tcp . 30080 counter packets 7"), "-f", "-")
	b := openAs(t, Options{NetNS: loaded.fd(), Unowned: true, Counters: true})
	apply(t, b, s)
	if got := b.Stats(model.IPv4).Operations + b.Stats(model.IPv6).Operations; got != 0 {
		t.Errorf("%d operations after loading the listing, want none", got)
	}
	if got := connections(t, b)["IPv4 default/web:http/tcp"]; got != 7 {
		t.Errorf("%d connections after loading the listing, want 7", got)
	}
}

// Counting begins and ends at a start while connections go on.
func TestCountingIsSwitchedWhileConnectionsGoOn(t *testing.T) {
	builder := countedBuilder(map[string]func(*model.Service){"plain": nil})
	w := newWorld(t)
	b := open(t, w.node)
	apply(t, b, builder.Snapshot())
	conn := w.outside.dial(t, "tcp", "172.30.0.41:80")
	defer func() { _ = conn.Close() }()
	talk(t, conn)
	table := func() string {
		line, _, _ := strings.Cut(w.node.nft(t, "", "-a", "list", "table", "ip", "vmapd"), "\n")
		return line[strings.Index(line, "handle"):]
	}
	handle, plain := table(), w.node.nft(t, "", "list", "ruleset")
	connections(t, b).mustBe(t, "while nothing is counted", counts{})
	for range 2 {
		b = reopen(t, w.node, b, Options{Counters: true})
		apply(t, b, builder.Snapshot())
		if got := b.Stats(model.IPv4).Batches; got != 1 {
			t.Errorf("%d batches, want 1", got)
		}
		w.outside.connections(t, 3, "tcp", "192.168.0.2:30041")
		talk(t, conn)
		connections(t, b).mustBe(t, "from then on", counts{
			"IPv4 default/plain:tcp/tcp": 3, "IPv4 default/plain:udp/udp": 0, "IPv6 default/plain:tcp/tcp": 0, "IPv6 default/plain:udp/udp": 0,
		})
		b = reopen(t, w.node, b, Options{})
		apply(t, b, builder.Snapshot())
		connections(t, b).mustBe(t, "after that", counts{})
		w.outside.connections(t, 1, "tcp", "172.30.0.41:80")
		talk(t, conn)
		if diff := cmp.Diff(plain, w.node.nft(t, "", "list", "ruleset")); diff != "" {
			t.Errorf("listing without counters, before (-) and after (+):\n%s", diff)
		}
	}
	if got := table(); got != handle {
		t.Errorf("the table is another: %s, was %s", got, handle)
	}
}

// A kernel that can't count is no reason to do without the rest.
func TestWithoutCountersInSetsAllElseIsProgrammed(t *testing.T) {
	n := newNetNS(t)
	b := openCounting(t, n)
	lacks := &UnsupportedError{Feature: "counters", Since: "5.7", Family: "IPv4", Without: "connections are not counted", Err: errors.ErrUnsupported}
	for _, st := range b.families {
		if err := b.conn.probeCounters(st.family); err != nil {
			t.Errorf("probe of %v: %v", st.family, err)
		}
		if st.family == model.IPv4 {
			st.uncountable = lacks
		}
	}
	if listing := n.nft(t, "", "list", "ruleset"); listing != "" {
		t.Errorf("the probe left:\n%s", listing)
	}
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	if got := n.nft(t, "", "list", "table", "ip", "vmapd"); strings.Contains(got, "counter") || !strings.Contains(got, "172.30.0.41 . tcp . 80") {
		t.Errorf("IPv4 has counters, or no Service:\n%s", got)
	}
	list, err := b.Connections(t.Context())
	if !errors.Is(err, lacks) || !strings.HasSuffix(err.Error(), "; connections are not counted: unsupported operation") {
		t.Errorf("got error %v, want what is missing", err)
	}
	if len(list) != 3 || list[0].Family != model.IPv6 {
		t.Errorf("got %v, want the three service ports of IPv6", list)
	}
}

// A scrape runs next to Apply, and never finds fewer connections than before.
func TestConnectionsAreReadWhileServicesChange(t *testing.T) {
	n := newNetNS(t)
	n.nowhere(t)
	b := openCounting(t, n)
	builder := exampleBuilder()
	const services = 2000
	modeltest.Feed(builder, modeltest.Cluster(services, 2))
	apply(t, b, builder.Snapshot())
	const connects = 20
	for range connects {
		n.connect(t, "172.30.0.41:80")
	}
	web := model.ServicePortName{NamespacedName: model.NamespacedName{Namespace: "default", Name: "web"}, Port: "http", Protocol: model.TCP}
	first := connections(t, b)["IPv4 default/web:http/tcp"]
	if first < connects {
		t.Fatalf("%d connections are counted, want at least %d", first, connects)
	}
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		last := first
		for reads := 0; ctx.Err() == nil || reads == 0; reads++ {
			list, err := b.Connections(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			i := slices.IndexFunc(list, func(c Count) bool { return c.Family == model.IPv4 && c.Name == web })
			if len(list) < services || i < 0 || list[i].Connections < last {
				t.Errorf("read %d: %d service ports, want at least %d, and %d connections", reads, len(list), services, last)
				return
			}
			last = list[i].Connections
			b.Stats(model.IPv4)
		}
	})
	for i := range 60 {
		builder.SetEndpointSlice(exampleSlice("IPv4", 1+i%4))
		name := model.NamespacedName{Namespace: "default", Name: fmt.Sprintf("more-%d", i/2)}
		if i%2 == 0 {
			builder.SetService(model.Service{
				NamespacedName: name, ClusterIPs: []string{fmt.Sprintf("172.29.0.%d", i)}, Ports: []model.Port{{Port: 80}},
			})
		} else {
			builder.DeleteService(name)
		}
		apply(t, b, builder.Snapshot())
	}
	stop()
	reading.Wait()
}

// A sum without one of its counters would look as if counting had begun anew.
func TestASumSaysWhetherACounterIsMissing(t *testing.T) {
	s := exampleBuilder().Snapshot().Family(model.IPv4)
	for sp := range s.ServicePorts() {
		packets, want := packetCounts{}, uint64(0)
		for i, fe := range sp.Frontends {
			if sum, complete := packets.sum(sp); sum != want || complete {
				t.Errorf("%v: %d of %d frontends: sum %d, want %d; complete: %v", sp.Name, i, len(sp.Frontends), sum, want, complete)
			}
			want += uint64(i + 1)
			packets[counterKey(fe)] = uint64(i + 1)
		}
		if sum, complete := packets.sum(sp); sum != want || !complete {
			t.Errorf("%v: sum %d, want %d; complete: %v", sp.Name, sum, want, complete)
		}
	}
}

func TestReadingCountsEndsWithItsContext(t *testing.T) {
	n := newNetNS(t)
	b := openCounting(t, n)
	apply(t, b, exampleBuilder().Snapshot())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Connections(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context has ended", err)
	}
}

package explain

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// The situations that users ask about are in testdata/script/explain-*.txtar, with all of
// the text. Here is what is true of every explanation, and what those do not meet.
//
// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2),
// outside 203.0.113.0/24.

func text(t *testing.T, e Explanation) string {
	t.Helper()
	var b strings.Builder
	if err := report.Print(&b, report.InText, e, e.Write); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// input is a TCP connection from 203.0.113.7.
func input(dest string, objects *names.Directory) Input {
	in := Input{Config: modeltest.Config(), Objects: objects}
	in.Source = netip.MustParseAddr("203.0.113.7")
	in.Dest, in.Protocol = netip.MustParseAddrPort(dest), model.TCP
	if in.Dest.Addr().Is6() {
		in.Source = netip.MustParseAddr("2001:db8:203::7")
	}
	in.Compile()
	return in
}

func web(slices ...modeltest.Slice) *names.Directory {
	o := &names.Directory{
		Nodes:    []model.Node{modeltest.OurNode().Node},
		Services: []names.ServiceObject{{Service: modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).Service}},
	}
	for _, s := range slices {
		o.Slices = append(o.Slices, names.SliceObject{EndpointSlice: s.EndpointSlice})
	}
	return o
}

// collect takes the objects of a random cluster apart.
func collect(objects map[model.ObjectRef]modeltest.Object) *names.Directory {
	out := new(names.Directory)
	for _, o := range objects {
		switch o := o.(type) {
		case modeltest.Service:
			out.Services = append(out.Services, names.ServiceObject{Service: o.Service})
		case modeltest.Slice:
			out.Slices = append(out.Slices, names.SliceObject{EndpointSlice: o.EndpointSlice})
		case modeltest.Node:
			out.Nodes = append(out.Nodes, o.Node)
		case modeltest.ServiceCIDR:
			out.ServiceCIDRs = append(out.ServiceCIDRs, o.ServiceCIDR)
		}
	}
	return out
}

// Whatever the cluster, the explanation says what the model decides, and why.
func TestExplainSaysWhatIsDecided(t *testing.T) {
	verdicts := map[report.Outcome]int{}
	for seed := range uint64(10) {
		r := modeltest.NewRandom(modeltest.Seed(seed))
		objects := map[model.ObjectRef]modeltest.Object{}
		for range 300 {
			c := r.Step()
			switch {
			case c.Object == nil:
			case c.Delete:
				delete(objects, c.Object.Ref())
			default:
				objects[c.Object.Ref()] = c.Object
			}
		}
		in := Input{Config: modeltest.Config(), Objects: collect(objects)}
		in.Compile()
		snapshot := in.Snapshot
		for _, f := range model.Families {
			for _, dest := range destinations(snapshot.Family(f)) {
				in.Dest, in.Protocol = netip.AddrPortFrom(dest.Addr, dest.Port), dest.Protocol
				in.Source = netip.MustParseAddr("203.0.113.7")
				if f == model.IPv6 {
					in.Source = netip.MustParseAddr("2001:db8:203::7")
				}
				e := Explain(in)
				verdicts[e.Verdict]++
				check(t, e, model.Decide(snapshot, model.Connection{Source: in.Source, Dest: in.Dest, Protocol: in.Protocol}))
			}
		}
	}
	for _, verdict := range []report.Outcome{report.Forwarded, report.Rejected, report.Dropped, report.NotService} {
		if verdicts[verdict] == 0 {
			t.Errorf("nothing was %s: the clusters show too little", verdict)
		}
	}
}

// destinations are all frontends, and a port beside each.
func destinations(f *model.FamilySnapshot) []model.VIP {
	var list []model.VIP
	for sp := range f.ServicePorts() {
		for _, fe := range sp.Frontends {
			v := fe.VIP
			if fe.Kind == model.NodePort {
				if len(f.NodeAddrs) == 0 {
					continue
				}
				v.Addr = f.NodeAddrs[0]
			}
			list = append(list, v, model.VIP{Addr: v.Addr, Protocol: v.Protocol, Port: v.Port ^ 1})
		}
	}
	return list
}

func check(t *testing.T, e Explanation, d model.Decision) {
	t.Helper()
	if e.Verdict != report.OutcomeOf(d.Verdict) {
		t.Errorf("%v: explained as %s; decided %v", d.Dest, e.Verdict, d.Verdict)
	}
	var want, got []string
	for _, target := range d.Targets {
		want = append(want, fmt.Sprintf("%v %v", target.Addr, target.SNAT.Masquerade()))
	}
	for _, u := range e.Used {
		got = append(got, fmt.Sprintf("%s %v", u.Address, u.Masquerade))
	}
	testaid.Equal(t, d.Dest.String(), want, got)
	if len(e.Steps) == 0 || e.Conclusion == "" {
		t.Errorf("%v: nothing is said", d.Dest)
	}
	written := text(t, e)
	if last := written[strings.LastIndex(strings.TrimSpace(written),
		"\n")+1:]; last != "=> "+model.OneLine(e.Conclusion)+"\n" {
		t.Errorf("%v: the last line is %q", d.Dest, last)
	}
}

// The daemon may not know yet that a Service is deleted: what it serves is explained without names.
func TestAServiceThatIsServedAndDeleted(t *testing.T) {
	in := input("172.30.0.41:80", web(modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Local("10.0.0.2")))
	served := in.Snapshot
	in = input("172.30.0.41:80", new(names.Directory))
	in.Snapshot = served
	testaid.Equal(t, "conclusion", "forwarded to 10.0.0.2:8080", Explain(in).Conclusion)
}

// An older pod, whose object is still there, had the address of a new one: what is said is of the new one.
func TestAnAddressThatANewPodHasAgain(t *testing.T) {
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).
		Endpoint("10.0.0.2", modeltest.OnNode("node-2"), modeltest.ForZones("zone-b")).
		Endpoint("10.0.0.2", modeltest.OnNode(modeltest.NodeName), modeltest.ForZones("zone-a"),
			modeltest.Conditions(false, false, true))
	got := text(t, Explain(input("172.30.0.41:80", web(slice))))
	if want := "     10.0.0.2:8080  on node-2, for zone-b\n"; !strings.Contains(got, want) {
		t.Errorf("want %q in\n%s", want, got)
	}
	got = text(t, Explain(input("10.0.0.2:8080", web(slice))))
	if want := "10.0.0.2 is the own address of an endpoint, on node-2, in Services: ns1/web. Connecting to it " +
		"directly bypasses them."; !strings.Contains(got, want) {
		t.Errorf("want %q in\n%s", want, got)
	}
}

// A name that no API server has checked must not reach into the terminal.
func TestTextHasNoControlCharacters(t *testing.T) {
	slice := modeltest.NewSlice("ns1/web-\x1b[31m\n1", "web").TCP("http", 8080).
		Endpoint("10.0.0.2", modeltest.OnNode("node\r\x07"), modeltest.Conditions(false, false, false))
	got := text(t, Explain(input("172.30.0.41:80", web(slice))))
	if strings.ContainsAny(got, "\x1b\r\x07") || !strings.Contains(got, `on node\r\a, EndpointSlice ns1/web-\x1b[31m\n1`) {
		t.Errorf("got %q", got)
	}
}

func TestManyEndpointsAreCounted(t *testing.T) {
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080)
	for i := range 100 {
		slice = slice.Ready(netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}).String())
	}
	got := text(t, Explain(input("172.30.0.41:80", web(slice))))
	for _, want := range []string{
		"100 of 100 endpoints used:", "10.0.1.9:8080", "and 90 more",
		"=> forwarded to one of 100 endpoints\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "10.0.1.10:8080") {
		t.Errorf("too many are listed:\n%s", got)
	}
}

// A lookup table leaves nothing to chance, so its choice has a name.
func TestTheEndpointOfALookupTableIsNamed(t *testing.T) {
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.3", "10.0.0.4", "10.0.0.5")
	for algorithm, named := range map[string]bool{
		"random": false, "maglev": true,
		"maglev-port": false,
	} { // the client's port is not known
		objects := web(slice)
		objects.Services[0].Annotations = map[string]string{model.AnnotationAlgorithm: algorithm}
		in := input("172.30.0.41:80", objects)
		e := Explain(in)
		want := ""
		if d := model.Decide(in.Snapshot, in.Connection); named {
			target, ok := d.Chosen()
			if !ok {
				t.Fatal("nothing is chosen")
			}
			want = target.Addr.String()
		}
		if said := strings.Contains(text(t, e), "With the backend nftables, it is "+want+"."); said != named {
			t.Errorf("%s: the endpoint is said: %v\n%s", algorithm, said, text(t, e))
		}
	}
}

func TestLessCommonSituations(t *testing.T) {
	none := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080)
	unlabelled := none.Ready("10.0.0.2")
	unlabelled.Labels = nil
	loopback := func(in *Input) {
		in.Source = netip.MustParseAddr("127.0.0.1")
		in.Config.NodePortAddresses.Localhost = [2]bool{true, true}
	}
	nodePort := web(none.Ready("10.0.0.2"))
	nodePort.Services[0].Service = modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http",
		80).NodePort(30080).Service
	localNodePort := web(none.Ready("10.0.0.2"))
	localNodePort.Services[0] = nodePort.Services[0]
	localNodePort.Services[0].ExternalTrafficPolicy = "Local"
	twoPorts := web(none.Ready("10.0.0.2"))
	twoPorts.Services[0].Service = modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).TCP("also",
		80).Service
	manyPorts := web(none.Ready("10.0.0.2"))
	wide := modeltest.NewService("ns1/web").On("172.30.0.41").External("192.168.99.9").Sticky(60)
	for port := range 1001 {
		wide = wide.TCP(fmt.Sprintf("p%d", port), int32(10_000+port))
	}
	manyPorts.Services[0].Service = wide.Service
	lb := modeltest.NewService("ns1/web").On("172.30.0.41").LoadBalancer("192.168.98.1").TCP("http", 80).Service
	badRanges := web(none.Ready("10.0.0.2"))
	lb.SourceRanges = []string{"everybody"}
	badRanges.Services[0].Service = lb

	for _, tt := range []struct {
		name    string
		dest    string
		objects *names.Directory
		change  func(*Input)
		want    []string // lines, or what they begin with
	}{
		{
			"bad endpoints only", "172.30.0.41:80", web(none.Ready("10.0.0.300")), nil,
			[]string{
				`3. No EndpointSlice of Service ns1/web has an endpoint for port "http".`,
				`problem: EndpointSlice ns1/web-1: endpoints[0].addresses[0]: "10.0.0.300" is not an IP address`,
			},
		},
		{
			"a slice without its label", "172.30.0.41:80", web(unlabelled), nil,
			[]string{"next: EndpointSlice ns1/web-1 lacks the label kubernetes.io/service-name=web: it belongs to no Service."},
		},
		{
			"two ports of one Service on one number", "172.30.0.41:80", twoPorts, nil,
			[]string{"problem: Service ns1/web: spec.ports[1].port: a second TCP port with the number 80"},
		},
		{
			"a port beyond the limit", "172.30.0.41:11000", manyPorts, nil,
			[]string{
				"   172.30.0.41 is an address of Service ns1/web, which is not served there: see its problems.",
				"=> rejected: Service ns1/web does not serve 172.30.0.41:11000/tcp: see its problems",
			},
		},
		{
			"source ranges that can't be read", "192.168.98.1:80", badRanges, nil,
			[]string{
				"2. loadBalancerSourceRanges allow only (no valid range). 203.0.113.7 is not among them.",
				"=> dropped: 203.0.113.7 is not in loadBalancerSourceRanges",
			},
		},
		{
			"a node port on loopback, for this node's processes only", "127.0.0.1:30080", nodePort,
			func(in *Input) { loopback(in); in.Source = netip.MustParseAddr("203.0.113.7") },
			[]string{
				`   "http" (30080/tcp) is the node port of Service ns1/web; node ports of this node answer on 192.168.0.2, ` +
					`and on loopback for processes of this node with tcp and udp (--nodeport-addresses).`,
			},
		},
		{
			"… which the policy Local does not bind", "127.0.0.1:30080", localNodePort, loopback,
			[]string{
				"from 127.0.0.1 (a process of this node)",
				"2. externalTrafficPolicy is Local, but the client is a pod or this node, as if",
				"=> forwarded to 10.0.0.2:8080",
			},
		},
		{
			"a node port where the node's addresses are not known", "192.168.0.2:30080",
			&names.Directory{Services: nodePort.Services, Slices: nodePort.Slices},
			nil,
			[]string{
				`   "http" (30080/tcp) is the node port of Service ns1/web; node ports of this node answer on no known ` +
					`address (--nodeport-addresses).`,
			},
		},
		{
			"this Node has no podCIDRs yet", "172.30.0.41:80", web(none.Ready("10.0.0.2")),
			func(in *Input) { in.Config.LocalPods.Mode = model.ByNodeCIDR },
			[]string{"from 203.0.113.7 (possibly a pod: no range of pods is known (--cluster-cidr, or the Node's " +
				"spec.podCIDRs))", "problem: Node node-1: " +
				"spec.podCIDRs:"},
		},
		{
			"by another interface than the pods' bridge", "172.30.0.41:80", web(none.Ready("10.0.0.2")),
			func(in *Input) {
				in.Config.LocalPods = model.LocalPods{Mode: model.ByBridge, Interface: "cni0"}
				in.Interface = "eth0"
			},
			[]string{
				"from 203.0.113.7 (not a pod: those are recognized by the interface cni0 (--interface))",
				"5. The source address becomes this node's: the client is not recognized as a pod,",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(tt.dest, tt.objects)
			if tt.change != nil {
				tt.change(&in)
				in.Compile()
			}
			got := text(t, Explain(in))
			for _, want := range tt.want {
				if !strings.Contains("\n"+got, "\n"+want) {
					t.Errorf("no line begins with %q in:\n%s", want, got)
				}
			}
		})
	}
}

// The texts of objects are compared as addresses, however old their spelling is.
func TestAddressesWithLeadingZeros(t *testing.T) {
	objects := web(modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Local("10.000.000.002"))
	objects.Nodes[0].Addresses = []string{"192.168.000.002"}
	objects.Services[0].ClusterIPs = []string{"172.030.000.041"}
	in := input("172.30.0.41:80", objects)
	if a, err := in.nodeAddress(); a != netip.MustParseAddr(modeltest.NodeIP4) {
		t.Errorf("the node's address: %v, %v", a, err)
	}
	testaid.Equal(t, "endpoint's node", modeltest.NodeName, Explain(in).Used[0].Node)
	if q := (names.Query{To: names.Ref{Addr: in.Dest.Addr()}}); !q.Concerns(&objects.Services[0]) {
		t.Error("the Service does not have its cluster IP")
	}
}

package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Options for endpoints. 10.0.0.2 and .4 are on our node, .3 and .5 are not.
var (
	here  = modeltest.OnNode(modeltest.NodeName)
	there = modeltest.OnNode("node-2")

	leaving = modeltest.Conditions(false, true, true)   // terminating, but still serving
	gone    = modeltest.Conditions(false, false, true)  // terminating, not serving any more
	unready = modeltest.Conditions(false, false, false) // not there yet
)

// allKinds is a Service with a frontend of each kind.
func allKinds() modeltest.Service {
	return web().LoadBalancer("192.168.98.11").External("192.168.99.11").NodePort(30001)
}

func TestTrafficPolicies(t *testing.T) {
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Local("10.0.0.2").Ready("10.0.0.3")
	for _, tt := range []struct {
		name               string
		internal, external string
		want               string
		problems           []string
	}{
		{
			"no policy means Cluster", "", "",
			"[172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade, 192.168.99.11:80 forward masquerade, " +
				":30001 forward masquerade] 10.0.0.2:8080 local, 10.0.0.3:8080", nil,
		},
		{
			"Cluster", "Cluster", "Cluster",
			"[172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade, 192.168.99.11:80 forward masquerade, " +
				":30001 forward masquerade] 10.0.0.2:8080 local, 10.0.0.3:8080", nil,
		},
		{
			"the internal policy is for the cluster IP alone", "Local", "Cluster",
			"[172.30.0.41:80 forward local, 192.168.98.11:80 forward masquerade, 192.168.99.11:80 forward masquerade, " +
				":30001 forward masquerade] 10.0.0.2:8080 local in both lists, 10.0.0.3:8080", nil,
		},
		{
			"the external policy is for all others", "Cluster", "Local",
			"[172.30.0.41:80 forward, 192.168.98.11:80 forward local masquerade-node short-circuit, " +
				"192.168.99.11:80 forward local masquerade-node short-circuit, " +
				":30001 forward local masquerade-node short-circuit] 10.0.0.2:8080 local in both lists, 10.0.0.3:8080", nil,
		},
		{
			"both", "Local", "Local",
			"[172.30.0.41:80 forward local, 192.168.98.11:80 forward local masquerade-node short-circuit, " +
				"192.168.99.11:80 forward local masquerade-node short-circuit, " +
				":30001 forward local masquerade-node short-circuit] 10.0.0.2:8080 local in both lists, 10.0.0.3:8080", nil,
		},
		{
			"an unknown policy is reported, and means Cluster", "local", "Node",
			"[172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade, 192.168.99.11:80 forward masquerade, " +
				":30001 forward masquerade] 10.0.0.2:8080 local, 10.0.0.3:8080",
			[]string{
				`Service ns1/web: spec.externalTrafficPolicy: "Node" is neither Cluster nor Local: treated as Cluster`,
				`Service ns1/web: spec.internalTrafficPolicy: "local" is neither Cluster nor Local: treated as Cluster`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), allKinds().Policies(tt.internal, tt.external), slice)
			checkPorts(t, s, "ns1/web:http/tcp "+tt.want)
			checkProblems(t, s, tt.problems...)
		})
	}

	t.Run("endpoints that no frontend is sent to are left out", func(t *testing.T) {
		s := modeltest.Snapshot(modeltest.Config(), web().Policies("Local", "Local"), slice)
		checkPorts(t, s, "ns1/web:http/tcp [172.30.0.41:80 forward local] 10.0.0.2:8080 local in the local list")
	})

	t.Run("a policy that changes", func(t *testing.T) {
		b := modeltest.Builder(modeltest.Config(), web(), slice)
		checkPorts(t, b.Snapshot(), "ns1/web:http/tcp [172.30.0.41:80 forward] 10.0.0.2:8080 local, 10.0.0.3:8080")
		web().Policies("Local", "").Set(b)
		checkPorts(t, b.Snapshot(), "ns1/web:http/tcp [172.30.0.41:80 forward local] 10.0.0.2:8080 local in the local list")
		equal(t, "hairpins", []string{"10.0.0.2"}, addrs(b.Snapshot().Family(model.IPv4).Hairpins()))
		web().Set(b)
		checkPorts(t, b.Snapshot(), "ns1/web:http/tcp [172.30.0.41:80 forward] 10.0.0.2:8080 local, 10.0.0.3:8080")
	})
}

// The two lists fall back to terminating endpoints independently (KEP-1669).
func TestListsFallBackIndependently(t *testing.T) {
	type endpoint struct {
		addr    string
		options []func(*model.SliceEndpoint)
	}
	at := func(addr string, options ...func(*model.SliceEndpoint)) endpoint { return endpoint{addr, options} }
	const (
		forward = "[172.30.0.41:80 forward local, 192.168.99.11:80 forward local masquerade-node short-circuit]"
		drop    = "[172.30.0.41:80 drop local, 192.168.99.11:80 drop local masquerade-node short-circuit]"
		reject  = "[172.30.0.41:80 reject local, 192.168.99.11:80 reject local masquerade-node]"
	)
	for _, tt := range []struct {
		name      string
		endpoints []endpoint
		want      string
	}{
		{"none at all", nil, reject},
		{"ready here and there", []endpoint{at("10.0.0.2", here), at("10.0.0.3", there)}, forward + " 10.0.0.2:8080 local in both lists, 10.0.0.3:8080"},
		{"ready here", []endpoint{at("10.0.0.2", here)}, forward + " 10.0.0.2:8080 local in both lists"},
		{"ready there", []endpoint{at("10.0.0.3", there)}, drop + " 10.0.0.3:8080"},
		{
			"leaving here, ready there: only the local list falls back",
			[]endpoint{at("10.0.0.2", here, leaving), at("10.0.0.3", there)},
			forward + " 10.0.0.2:8080 local in the local list, 10.0.0.3:8080",
		},
		{
			"ready here, leaving there: neither falls back",
			[]endpoint{at("10.0.0.2", here), at("10.0.0.3", there, leaving)},
			forward + " 10.0.0.2:8080 local in both lists",
		},
		{
			"ready and leaving here: the local list does not fall back either",
			[]endpoint{at("10.0.0.2", here, leaving), at("10.0.0.4", here), at("10.0.0.3", there)},
			forward + " 10.0.0.3:8080, 10.0.0.4:8080 local in both lists",
		},
		{
			"leaving and ready here, in another order",
			[]endpoint{at("10.0.0.2", here), at("10.0.0.4", here, leaving)},
			forward + " 10.0.0.2:8080 local in both lists",
		},
		{
			"leaving here and there: both fall back",
			[]endpoint{at("10.0.0.2", here, leaving), at("10.0.0.3", there, leaving)},
			forward + " 10.0.0.2:8080 local in both lists, 10.0.0.3:8080",
		},
		{"leaving there", []endpoint{at("10.0.0.3", there, leaving)}, drop + " 10.0.0.3:8080"},
		{"leaving there, and here no more", []endpoint{at("10.0.0.2", here, gone), at("10.0.0.3", there, leaving)}, drop + " 10.0.0.3:8080"},
		{"ready there, not yet here", []endpoint{at("10.0.0.2", here, unready), at("10.0.0.3", there)}, drop + " 10.0.0.3:8080"},
		{"none that serves", []endpoint{at("10.0.0.2", here, gone), at("10.0.0.3", there, unready)}, reject},
		{
			// The controller publishes them so for publishNotReadyAddresses.
			"ready while leaving is ready",
			[]endpoint{at("10.0.0.2", here, modeltest.Conditions(true, false, true)), at("10.0.0.4", here, leaving)},
			forward + " 10.0.0.2:8080 local in both lists",
		},
		{"no node is not our node", []endpoint{at("10.0.0.3")}, drop + " 10.0.0.3:8080"},
		{
			"ready there, and an older pod with its address is leaving here: it is there",
			[]endpoint{at("10.0.0.2", there), at("10.0.0.2", here, leaving)},
			drop + " 10.0.0.2:8080",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080)
			for _, e := range tt.endpoints {
				slice = slice.Endpoint(e.addr, e.options...)
			}
			s := modeltest.Snapshot(modeltest.Config(), web().External("192.168.99.11").Policies("Local", "Local"), slice)
			checkPorts(t, s, "ns1/web:http/tcp "+tt.want)
		})
	}

	t.Run("the last endpoint here moves away, and comes back", func(t *testing.T) {
		service := web().Policies("Local", "")
		with := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Local("10.0.0.2").Ready("10.0.0.3")
		b := modeltest.Builder(modeltest.Config(), service, with)
		const before = "ns1/web:http/tcp [172.30.0.41:80 forward local] 10.0.0.2:8080 local in the local list"
		checkPorts(t, b.Snapshot(), before)
		webSlice().Set(b)
		checkPorts(t, b.Snapshot(), "ns1/web:http/tcp [172.30.0.41:80 drop local]")
		webSlice().Delete(b)
		checkPorts(t, b.Snapshot(), "ns1/web:http/tcp [172.30.0.41:80 reject local]")
		with.Set(b)
		checkPorts(t, b.Snapshot(), before)
	})
}

// Each cell of the table of when a connection is rejected and when dropped.
func TestRejectOrDrop(t *testing.T) {
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080)
	const (
		has    = model.HasEndpoints
		pod    = model.FromPodInside
		node   = model.FromNodeInside
		none   = model.NoEndpoints
		nobody = model.NoLocalEndpoints
	)
	verdicts := map[model.Reason]model.Verdict{
		has: model.Forwarded, pod: model.Forwarded, node: model.Forwarded, none: model.Rejected, nobody: model.Dropped,
	}
	clients := []model.Connection{
		tcp("10.0.0.9", "172.30.0.41:80"), tcp("192.168.0.2", "172.30.0.41:80"), tcp("203.0.113.9", "172.30.0.41:80"),
	}
	type cells [3]model.Reason // from a pod, the node, outside
	config := modeltest.Config()
	config.LocalPods.ClusterCIDRs = prefixes("10.0.0.0/8")
	for _, tt := range []struct {
		name               string
		internal, external string
		slice              modeltest.Slice
		clusterIP, others  cells
	}{
		{"no endpoints", "Cluster", "Cluster", slice, cells{none, none, none}, cells{none, none, none}},
		{"no endpoints, Local", "Local", "Local", slice, cells{none, none, none}, cells{none, none, none}},
		{"none that serves", "Local", "Local", slice.Endpoint("10.0.0.2", here, gone), cells{none, none, none}, cells{none, none, none}},
		{"elsewhere", "Cluster", "Cluster", slice.Ready("10.0.0.3"), cells{has, has, has}, cells{has, has, has}},
		{"elsewhere, internal Local", "Local", "Cluster", slice.Ready("10.0.0.3"), cells{nobody, nobody, nobody}, cells{has, has, has}},
		{"elsewhere, external Local", "Cluster", "Local", slice.Ready("10.0.0.3"), cells{has, has, has}, cells{pod, node, nobody}},
		{"elsewhere, both Local", "Local", "Local", slice.Ready("10.0.0.3"), cells{nobody, nobody, nobody}, cells{pod, node, nobody}},
		{"elsewhere, leaving, both Local", "Local", "Local", slice.Endpoint("10.0.0.3", there, leaving), cells{nobody, nobody, nobody}, cells{pod, node, nobody}},
		{"here, both Local", "Local", "Local", slice.Local("10.0.0.2"), cells{has, has, has}, cells{pod, node, has}},
		{"here, leaving, both Local", "Local", "Local", slice.Endpoint("10.0.0.2", here, leaving), cells{has, has, has}, cells{pod, node, has}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(config, modeltest.OurNode(), allKinds().Policies(tt.internal, tt.external), tt.slice)
			for dest, want := range map[string]cells{
				"172.30.0.41:80": tt.clusterIP, "192.168.98.11:80": tt.others,
				"192.168.99.11:80": tt.others, "192.168.0.2:30001": tt.others,
			} {
				for i, c := range clients {
					c.Dest = addrPort(dest)
					d := model.Decide(s, c)
					what := c.Source.String() + " to " + dest
					equal(t, what, reasons[want[i]], reasons[d.Why])
					equal(t, what, verdicts[want[i]], d.Verdict)
					equal(t, what+": are there targets?", d.Verdict == model.Forwarded, len(d.Targets) > 0)
				}
			}
		})
	}
}

func TestShortCircuit(t *testing.T) {
	config := modeltest.Config()
	config.LocalPods.ClusterCIDRs = prefixes("10.0.0.0/8")
	local := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Local("10.0.0.2").Ready("10.0.0.3")
	external := modeltest.Snapshot(config, modeltest.OurNode(), allKinds().Policies("", "Local"), local)
	cluster := modeltest.Snapshot(config, modeltest.OurNode(), allKinds(), local)
	for _, tt := range []struct {
		name string
		s    *model.Snapshot
		c    model.Connection
		want string
	}{
		{"a pod is sent anywhere", external, tcp("10.0.0.9", "192.168.98.11:80"), "forwarded, from a pod inside: 10.0.0.2:8080, 10.0.0.3:8080"},
		{
			"the node is sent anywhere", external, tcp("192.168.0.2", "192.168.98.11:80"),
			"forwarded, from the node inside: 10.0.0.2:8080 masqueraded: from the node, 10.0.0.3:8080 masqueraded: from the node",
		},
		{
			"the node, with the VIP as its source", external, fromNode("192.168.98.11", "192.168.98.11:80"),
			"forwarded, from the node inside: 10.0.0.2:8080 masqueraded: from the node, 10.0.0.3:8080 masqueraded: from the node",
		},
		{
			// The detector has precedence: a process on the node that uses the bridge's address.
			"the node, with an address among the pods'", external, fromNode("10.0.0.1", "192.168.98.11:80"),
			"forwarded, from a pod inside: 10.0.0.2:8080 masqueraded: from the node, 10.0.0.3:8080 masqueraded: from the node",
		},
		{"others are not", external, tcp("203.0.113.9", "192.168.98.11:80"), "forwarded, has endpoints: 10.0.0.2:8080"},
		{
			"the policy Cluster knows no exception", cluster, tcp("10.0.0.9", "192.168.98.11:80"),
			"forwarded, has endpoints: 10.0.0.2:8080 masqueraded: external, 10.0.0.3:8080 masqueraded: external",
		},
	} {
		t.Run(tt.name, func(t *testing.T) { equal(t, "outcome", tt.want, outcome(tt.s, tt.c)) })
	}
}

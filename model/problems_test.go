package model_test

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// A fault affects at most its object, here the Service or slice: the Service beside it is
// programmed.
func TestBadServices(t *testing.T) {
	const good = "ns1/web:http/tcp [172.30.0.41:80 forward] 10.0.0.2:8080, 10.0.0.3:8080"
	bad := modeltest.NewService("ns1/bad").On("172.30.0.99").TCP("p", 99)
	label := strings.Repeat("a", 63)
	const rest = "ns1/bad:p/tcp [172.30.0.99:99 reject]"
	named := func(namespace, name string) modeltest.Service {
		s := bad
		s.NamespacedName = model.NamespacedName{Namespace: namespace, Name: name}
		return s
	}
	for _, tt := range []struct {
		name     string
		service  modeltest.Service
		want     string // the service ports that are left
		problems []string
	}{
		{"a cluster IP that is no address", bad.On("nowhere"), "", []string{`Service ns1/bad: spec.clusterIPs[0]: "nowhere" is not an IP address`}},
		{"five octets", bad.On("172.30.0.99.1"), "", []string{`Service ns1/bad: spec.clusterIPs[0]: "172.30.0.99.1" is not an IP address`}},
		{"the unspecified address", bad.On("0.0.0.0"), "", []string{`Service ns1/bad: spec.clusterIPs[0]: "0.0.0.0" is the unspecified address`}},
		{"the unspecified address, IPv4-mapped", bad.On("::ffff:0.0.0.0"), "", []string{`Service ns1/bad: spec.clusterIPs[0]: "::ffff:0.0.0.0" is the unspecified address`}},
		{"a loopback address", bad.On("127.0.0.1"), "", []string{`Service ns1/bad: spec.clusterIPs[0]: "127.0.0.1" is a loopback address`}},
		{"a multicast address", bad.On("ff02::1"), "", []string{`Service ns1/bad: spec.clusterIPs[0]: "ff02::1" is a multicast address`}},
		{"a zone", bad.On("fe80::1%eth0"), "", []string{`Service ns1/bad: spec.clusterIPs[0]: "fe80::1%eth0" has a zone`}},
		{"an empty address beside a good one", bad.On("172.30.0.99", ""), rest, []string{`Service ns1/bad: spec.clusterIPs[1]: "" is not an IP address`}},
		{"two cluster IPs of one family", bad.On("172.30.0.99", "172.30.0.100"), rest, []string{"Service ns1/bad: spec.clusterIPs[1]: a second IPv4 cluster IP"}},
		{"a bad external IP", bad.External("10.0.0.300"), rest, []string{`Service ns1/bad: spec.externalIPs[0]: "10.0.0.300" is not an IP address`}},
		{"a bad load-balancer address", bad.LoadBalancer("::1"), rest, []string{`Service ns1/bad: status.loadBalancer.ingress[0].ip: "::1" is a loopback address`}},
		{"port 0", bad.TCP("q", 0), rest, []string{"Service ns1/bad: spec.ports[1].port: 0 is not between 1 and 65535"}},
		{"port 65536", bad.TCP("q", 65536), rest, []string{"Service ns1/bad: spec.ports[1].port: 65536 is not between 1 and 65535"}},
		{"port -1", bad.TCP("q", -1), rest, []string{"Service ns1/bad: spec.ports[1].port: -1 is not between 1 and 65535"}},
		{"node port 70000", bad.TCP("q", 100).NodePort(70000), rest, []string{"Service ns1/bad: spec.ports[1].nodePort: 70000 is not between 1 and 65535"}},
		{"an unknown protocol", bad.Port(model.Port{Name: "q", Protocol: "ICMP", Port: 1}), rest, []string{`Service ns1/bad: spec.ports[1].protocol: "ICMP" is none of TCP, UDP, SCTP`}},
		{"a protocol in small letters", bad.Port(model.Port{Name: "q", Protocol: "tcp", Port: 1}), rest, []string{`Service ns1/bad: spec.ports[1].protocol: "tcp" is none of TCP, UDP, SCTP`}},
		{"a port number twice", bad.TCP("q", 99), rest, []string{"Service ns1/bad: spec.ports[1].port: a second TCP port with the number 99"}},
		{"a node port twice", bad.NodePort(30001).TCP("q", 100).NodePort(30001), rest[:len(rest)-1] + ", :30001 reject masquerade]", []string{"Service ns1/bad: spec.ports[1].nodePort: a second TCP port with the node port 30001"}},
		{"a port name twice", bad.TCP("p", 100), rest, []string{`Service ns1/bad: spec.ports[1].name: a second TCP port with the name "p"`}},
		{"a port name with a quote", bad.TCP(`q"`, 100), rest, []string{`Service ns1/bad: spec.ports[1].name: "q\"" is not a DNS label`}},
		{"a port name with a newline", bad.TCP("q\n", 100), rest, []string{`Service ns1/bad: spec.ports[1].name: "q\n" is not a DNS label`}},
		{"a name with a quote", named("ns1", `b"`), "", []string{`Service ns1/b": metadata.name: "b\"" is not a DNS label`}},
		{"a name with a newline", named("ns1", "b\nad"), "", []string{`Service ns1/b\nad: metadata.name: "b\nad" is not a DNS label`}},
		{"a name in capitals", named("ns1", "Bad"), "", []string{`Service ns1/Bad: metadata.name: "Bad" is not a DNS label`}},
		{"a name that begins with a hyphen", named("ns1", "-bad"), "", []string{`Service ns1/-bad: metadata.name: "-bad" is not a DNS label`}},
		{"a name of two labels", named("ns1", "b.ad"), "", []string{`Service ns1/b.ad: metadata.name: "b.ad" is not a DNS label`}},
		{"a name of 63 characters, the first a digit", named(label, "0"+label[1:]), label + "/0" + label[1:] + ":p/tcp [172.30.0.99:99 reject]", nil},
		{"a name of 64 characters", named("ns1", "a"+label), "", []string{`Service ns1/a` + label + `: metadata.name: "a` + label + `" has 64 characters, a DNS label has 63 at most`}},
		{"a namespace of 64 characters", named("a"+label, "bad"), "", []string{`Service a` + label + `/bad: metadata.namespace: "a` + label + `" has 64 characters, a DNS label has 63 at most`}},
		{"a port name of 64 characters", bad.TCP("a"+label, 100), rest, []string{`Service ns1/bad: spec.ports[1].name: "a` + label + `" has 64 characters, a DNS label has 63 at most`}},
		{"no name", named("ns1", ""), "", []string{`Service ns1/: metadata.name: "" is not a DNS label`}},
		{"no namespace", named("", "bad"), "", []string{`Service bad: metadata.namespace: "" is not a DNS label`}},
		{"a namespace with a dot", named("ns.1", "bad"), "", []string{`Service ns.1/bad: metadata.namespace: "ns.1" is not a DNS label`}},
		{
			"several things at once", bad.On("172.30.0.99", "nowhere").TCP("q", 0).TCP("r", 0), rest,
			[]string{
				`Service ns1/bad: spec.clusterIPs[1]: "nowhere" is not an IP address`,
				"Service ns1/bad: spec.ports[1].port: 0 is not between 1 and 65535",
				"Service ns1/bad: spec.ports[2].port: 0 is not between 1 and 65535",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := modeltest.Builder(modeltest.Config(), tt.service, web(), webSlice())
			want := []string{good}
			if tt.want != "" {
				want = []string{tt.want, good}
			}
			checkPorts(t, b.Snapshot(), want...)
			checkProblems(t, b.Snapshot(), tt.problems...)
			tt.service.Delete(b)
			checkPorts(t, b.Snapshot(), good)
			checkProblems(t, b.Snapshot())
		})
	}
}

func TestBadSlices(t *testing.T) {
	bad := modeltest.NewSlice("ns1/web-9", "web")
	good := bad.TCP("http", 8080)
	withoutLabel := good.Ready("10.0.0.9")
	withoutLabel.Labels = nil
	for _, tt := range []struct {
		name     string
		slice    modeltest.Slice
		problems []string
	}{
		{"no service name", withoutLabel, []string{
			"EndpointSlice ns1/web-9: metadata.labels: the label kubernetes.io/service-name is missing: its Service is unknown",
		}},
		{"an unknown address type", good.Typed("IPX").Ready("10.0.0.9"), []string{`EndpointSlice ns1/web-9: addressType: "IPX" is none of IPv4, IPv6, FQDN`}},
		{"no address type", good.Typed("").Ready("10.0.0.9"), []string{`EndpointSlice ns1/web-9: addressType: "" is none of IPv4, IPv6, FQDN`}},
		{"an endpoint of the other family", good.Ready("fd00:10::9"), []string{`EndpointSlice ns1/web-9: endpoints[0].addresses[0]: "fd00:10::9" is not an IPv4 address`}},
		{"IPv4 in a slice of IPv6", good.IPv6().Ready("10.0.0.9"), []string{`EndpointSlice ns1/web-9: endpoints[0].addresses[0]: "10.0.0.9" is not an IPv6 address`}},
		{"an endpoint that is no address", good.Ready("nowhere"), []string{`EndpointSlice ns1/web-9: endpoints[0].addresses[0]: "nowhere" is not an IP address`}},
		{"a loopback endpoint", good.Ready("127.0.0.1"), []string{`EndpointSlice ns1/web-9: endpoints[0].addresses[0]: "127.0.0.1" is a loopback address`}},
		{"an endpoint without address", good.RawEndpoint(model.SliceEndpoint{}), []string{"EndpointSlice ns1/web-9: endpoints[0].addresses: is empty"}},
		{"port 0", bad.TCP("http", 0).Ready("10.0.0.9"), []string{"EndpointSlice ns1/web-9: ports[0].port: 0 is not between 1 and 65535"}},
		{"port 70000", bad.TCP("http", 70000).Ready("10.0.0.9"), []string{"EndpointSlice ns1/web-9: ports[0].port: 70000 is not between 1 and 65535"}},
		{"no port number", bad.RawPort(model.SlicePort{Name: new("http")}).Ready("10.0.0.9"), []string{"EndpointSlice ns1/web-9: ports[0].port: is missing"}},
		{"an unknown protocol", bad.Port("http", "tcp", 1).Ready("10.0.0.9"), []string{`EndpointSlice ns1/web-9: ports[0].protocol: "tcp" is none of TCP, UDP, SCTP`}},
		{"an endpoint with a newline", good.Ready("10.0.0.9\n"), []string{`EndpointSlice ns1/web-9: endpoints[0].addresses[0]: "10.0.0.9\n" is not an IP address`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := modeltest.Builder(modeltest.Config(), web(), webSlice(), tt.slice)
			checkPorts(t, b.Snapshot(), webLine)
			checkProblems(t, b.Snapshot(), tt.problems...)
			tt.slice.Delete(b)
			checkProblems(t, b.Snapshot())
		})
	}

	t.Run("a bad endpoint leaves the good ones beside it", func(t *testing.T) {
		s := modeltest.Snapshot(modeltest.Config(), web(), good.Ready("nowhere", "10.0.0.2", "", "10.0.0.3"))
		checkPorts(t, s, webLine)
		testaid.Equal(t, "number of problems", 2, len(s.Problems))
	})

	t.Run("a problem stays one line whatever the name", func(t *testing.T) {
		s := modeltest.Snapshot(modeltest.Config(), modeltest.NewSlice("ns1/a\n\x1b[2Jb", "web").Typed(""))
		checkProblems(t, s, `EndpointSlice ns1/a\n\x1b[2Jb: addressType: "" is none of IPv4, IPv6, FQDN`)
	})
}

func TestBadNodes(t *testing.T) {
	b := modeltest.Builder(modeltest.Config(), modeltest.NewNode("node-1", "nowhere", "127.0.0.1", "192.168.0.2"))
	got := b.Snapshot().Family(model.IPv4).NodePortAddrs
	testaid.Equal(t, "number of node port addresses", 1, len(got))
	checkProblems(t, b.Snapshot(),
		`Node node-1: status.addresses[0].address: "nowhere" is not an IP address`,
		`Node node-1: status.addresses[1].address: "127.0.0.1" is a loopback address`)
	b.DeleteNode("node-1")
	checkProblems(t, b.Snapshot(),
		"Node node-1: metadata.name: no Node has it any more: the last known addresses, pod ranges and zone stay in use")
}

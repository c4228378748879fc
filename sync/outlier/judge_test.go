package outlier

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// court is a judge with a clock, and endpoints that answer or not.
type court struct {
	*judge
	*model.Builder
	t      *testing.T
	now    time.Time
	silent map[string]bool // endpoints
	asked  []string
}

func newCourt(t *testing.T, objects ...modeltest.Object) *court {
	t.Helper()
	config := modeltest.Config()
	config.OutlierDetection = true
	b := modeltest.Builder(config, append([]modeltest.Object{modeltest.OurNode()}, objects...)...)
	return &court{judge: newJudge(modeltest.NodeName, b, rand.Shuffle), Builder: b, t: t, now: modeltest.Moment(0), silent: map[string]bool{}}
}

// reads is a reading: texts like "10.0.0.3:8080 203.0.113.9 2". Whoever is to be asked answers a second later.
func (c *court) reads(attempts ...string) {
	c.t.Helper()
	var list []model.Attempt
	for _, text := range attempts {
		words := strings.Fields(text)
		a := model.Attempt{Endpoint: netip.MustParseAddrPort(words[0]), Client: netip.MustParseAddr(words[1])}
		if _, err := fmt.Sscan(words[2], &a.Packets); err != nil {
			c.t.Fatal(err)
		}
		list = append(list, a)
	}
	c.observe(c.now, list, c.Snapshot())
	due := c.due(c.now)
	for _, at := range due {
		c.ask(at)
		c.asked = append(c.asked, at.String())
	}
	c.now = c.now.Add(time.Second)
	for _, at := range due {
		a := Answered
		if c.silent[at.String()] {
			a = Silence
		}
		c.answered(c.now, at, a)
	}
	c.SetEjections(c.ejections())
}

// wants checks what is ejected, and what was asked since.
func (c *court) wants(ejected, asked string) {
	c.t.Helper()
	var got []string
	e := c.ejections()
	for _, one := range slices.Concat(e.Endpoints, e.Nodes) {
		if one.Endpoint.IsValid() {
			got = append(got, one.Endpoint.String())
		} else {
			got = append(got, one.Node)
		}
	}
	if text := strings.Join(got, " "); text != ejected {
		c.t.Errorf("%q is ejected, want %q", text, ejected)
	}
	if text := strings.Join(c.asked, " "); text != asked {
		c.t.Errorf("%q was asked, want %q", text, asked)
	}
	c.asked = nil
}

const (
	first, second, third = "10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.4:8080"
	client, other        = " 203.0.113.9 ", " 203.0.113.10 "
)

var (
	web      = modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80)
	slice    = modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080)
	webSlice = slice.Local("10.0.0.2").Endpoint("10.0.0.3", modeltest.OnNode("node-2")).Endpoint("10.0.0.4", modeltest.OnNode("node-3"))
)

func TestASilentEndpointIsEjectedAndComesBack(t *testing.T) {
	c := newCourt(t, web, webSlice)
	c.silent[second] = true
	c.reads(second + client + "1")
	c.wants("", second) // one packet is not enough
	c.reads(second + client + "2")
	c.wants(second, "") // it was silent a moment ago
	c.reads()
	c.wants(second, second)
	c.reads()
	c.reads()
	c.wants(second, "") // the next question is 2 s later
	c.reads()
	c.wants(second, second)
	for range 4 {
		c.reads()
	}
	c.silent[second] = false
	c.reads()
	c.wants("", second)
	if c.reads(); !c.idle() {
		t.Error("something is still suspect")
	}
}

func TestTwoClientsAreAsGoodAsTwoPackets(t *testing.T) {
	c := newCourt(t, web, webSlice)
	c.silent[second] = true
	c.reads(second+client+"1", second+other+"1")
	c.wants(second, second)
	if e, _ := c.ejections().Endpoint(netip.MustParseAddrPort(second)); e.Packets != 2 || e.Clients != 2 || e.Node != "node-2" {
		t.Errorf("it is ejected as %+v", e)
	}
}

// What answers is not ejected, however often a client sends again: a policy may stop that one.
func TestAnEndpointThatAnswersStays(t *testing.T) {
	c := newCourt(t, web, webSlice)
	for n := range 30 {
		c.reads(fmt.Sprint(second, client, n+1))
	}
	if e := c.ejections(); len(e.Endpoints) > 0 {
		t.Errorf("%v are ejected", e.Endpoints)
	}
	if n := len(c.asked); n < 4 || n > 7 { // after 1, 2, 4, 8 and 10 s
		t.Errorf("it was asked %d times in 30 s", n)
	}
	c.asked = nil
	for range 12 {
		c.reads()
	}
	if c.wants("", ""); !c.idle() {
		t.Error("nobody complains any more, and it is still suspect")
	}
}

func TestOnlyReadyEndpointsOfServicesWithDetectionAreAsked(t *testing.T) {
	off := modeltest.NewService("ns2/off").On("172.30.0.42").TCP("http", 80).Annotated(model.AnnotationOutlierDetection, "false")
	c := newCourt(t, web, webSlice, off, modeltest.NewSlice("ns2/off-1", "off").TCP("http", 8080).Endpoint("10.0.0.9", modeltest.OnNode("node-9")))
	c.reads("10.0.0.9:8080"+client+"5", "10.0.0.7:8080"+client+"5")
	c.wants("", "")
	c.silent[second] = true
	c.reads(second + client + "2")
	c.wants(second, second)
	slice.Local("10.0.0.2").Endpoint("10.0.0.3", modeltest.Conditions(false, false, false)).Set(c.Builder)
	c.reads() // Kubernetes says that it is not ready
	c.wants("", "")
}

func TestANodeIsEjectedWithItsWitnesses(t *testing.T) {
	api := modeltest.NewService("ns2/api").On("172.30.0.42").TCP("http", 80)
	apiSlice := modeltest.NewSlice("ns2/api-1", "api").TCP("http", 8080).Local("10.0.0.8").
		Endpoint("10.0.0.5", modeltest.OnNode("node-2"))
	for _, answers := range []bool{false, true} {
		t.Run(fmt.Sprintf("the witness answers: %v", answers), func(t *testing.T) {
			c := newCourt(t, web, webSlice, api, apiSlice)
			c.silent[second], c.silent["10.0.0.5:8080"] = true, !answers
			c.reads(second + client + "2")
			c.wants(second, second)
			c.reads()
			if answers {
				c.wants(second, "10.0.0.5:8080")
				return
			}
			c.wants(second+" node-2", "10.0.0.5:8080")
			sp, _ := c.Snapshot().Family(model.IPv4).ServicePort(modeltest.PortName("ns2/api", "http", model.TCP))
			if sp.Count(model.Cluster) != 1 {
				t.Errorf("endpoints of a Service that nobody called are %v", sp.Endpoints)
			}
			c.silent = map[string]bool{}
			for range 3 {
				c.reads()
			}
			c.asked = nil
			if c.wants("", ""); !c.idle() {
				t.Error("something is still suspect")
			}
		})
	}
}

// This Node is never ejected, nor is one of which nothing else is known.
func TestANodeWithoutWitnessesIsNotEjected(t *testing.T) {
	c := newCourt(t, web, webSlice)
	c.silent[first], c.silent[third] = true, true
	c.reads(first+client+"2", third+client+"2")
	c.reads()
	c.wants(first+" "+third, first+" "+third)
}

// Who may write EndpointSlices of a namespace does not get the endpoints of others ejected.
func TestAHostileNamespaceEjectsNobodyElse(t *testing.T) {
	bad := modeltest.NewService("bad/bad").On("172.30.0.66").TCP("http", 80)
	badSlice := modeltest.NewSlice("bad/bad-1", "bad").TCP("http", 8080).Local("10.0.0.2")
	for n := range 200 {
		badSlice = badSlice.Endpoint(fmt.Sprintf("10.66.0.%d", n+1), modeltest.OnNode("node-2"))
	}
	c := newCourt(t, web, webSlice, bad, badSlice)
	var attempts []string
	for n := range 200 {
		at := fmt.Sprintf("10.66.0.%d:8080", n+1)
		c.silent[at] = true
		attempts = append(attempts, at+client+"3")
	}
	for range 20 {
		c.reads(attempts...)
		if len(c.suspects) > mostSuspects+mostWitnesses {
			t.Fatalf("%d endpoints are suspect", len(c.suspects))
		}
	}
	if e := c.ejections(); len(e.Nodes) > 0 || !slices.Contains(c.asked, second) {
		t.Errorf("the Nodes %v are ejected", e.Nodes)
	}
	sp, _ := c.Snapshot().Family(model.IPv4).ServicePort(modeltest.PortName("ns1/web", "http", model.TCP))
	if sp.Count(model.Cluster) != 3 {
		t.Errorf("the other Service has endpoints %v", sp.Endpoints)
	}
}

// A node that can't ask knows nothing.
func TestWithoutAnAnswerNothingIsEjected(t *testing.T) {
	c := newCourt(t, web, webSlice)
	c.observe(c.now, []model.Attempt{{Endpoint: netip.MustParseAddrPort(second), Packets: 5}}, c.Snapshot())
	for _, at := range c.due(c.now) {
		c.ask(at)
		c.answered(c.now, at, Unknown)
	}
	c.wants("", "")
}

// BenchmarkReading is what a reading costs in a large cluster: of nothing, of one endpoint, and of as many pairs of endpoint
// and client as the kernel remembers.
func BenchmarkReading(b *testing.B) {
	const services, endpoints = 10_000, 10
	config := modeltest.Config()
	config.OutlierDetection = true
	builder := model.NewBuilder(config)
	modeltest.Feed(builder, modeltest.Cluster(services, endpoints))
	s := builder.Snapshot()
	for _, n := range []int{0, 1, 65_535} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var attempts []model.Attempt
			for sp := range s.Family(model.IPv4).ServicePorts() {
				for _, e := range sp.Endpoints {
					if len(attempts) < n {
						attempts = append(attempts, model.Attempt{Endpoint: e.Addr, Client: e.Addr.Addr(), Packets: 1})
					}
				}
			}
			j := newJudge("", builder, rand.Shuffle)
			for b.Loop() {
				j.observe(modeltest.Moment(0), attempts, s)
				j.due(modeltest.Moment(0))
			}
		})
	}
}

package ipvs_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// step is a transition of a random cluster, of one family.
type step struct {
	before, after *ipvs.State
	old, now      *model.Snapshot
}

// history follows random changes, and calls check with each transition.
func history(t *testing.T, r *modeltest.Random, config model.Config, o ipvs.Options, steps int, check func(step)) {
	t.Helper()
	b := model.NewBuilder(config)
	old := b.Snapshot()
	have := compile(states{}, old, o)
	for range steps {
		r.Steps(b, 1+r.IntN(4))
		now := b.Snapshot()
		next := compile(have, now, o)
		for _, f := range model.Families {
			check(step{have[f], next[f], old, now})
			if t.Failed() {
				t.FailNow()
			}
		}
		old, have = now, next
	}
}

// checkPlan checks the plan from a State to the one compiled after it.
func checkPlan(t *testing.T, s step) {
	t.Helper()
	family := s.now.Family(s.after.Family)
	content := s.before.Content()
	plan := ipvs.Diff(s.before, s.after)
	apply(t, content, plan)
	testaid.Equal(t, "content after the plan", settled(s.after.Content()), settled(content), compareContents...)
	testaid.Equal(t, "operations from a state to itself", 0, len(ipvs.Diff(s.after, s.after)))
	if t.Failed() {
		t.Logf("plan:\n%s", ipvssim.Text(plan))
	}

	// A restart: another process reads the content, and changes nothing.
	read := s.after.Content()
	again := ipvs.Compile(nil, family, s.after.Options)
	testaid.Equal(t, "content that was compiled from nothing", again.Content(), read, compareContents...)
	if plan := ipvs.DiffContent(read, again); len(plan) > 0 {
		t.Errorf("a restart writes:\n%s", ipvssim.Text(plan))
	}

	// A restart with changes: from the content before to the desired one.
	read = s.before.Content()
	apply(t, read, ipvs.DiffContent(read, again))
	testaid.Equal(t, "content after a restart", settled(s.after.Content()), settled(read), compareContents...)

	// After an error half-way, DiffContent finds the rest of the work.
	read = s.before.Content()
	apply(t, read, plan[:len(plan)/2])
	apply(t, read, ipvs.DiffContent(read, s.after))
	testaid.Equal(t, "content after half a plan and another", settled(s.after.Content()), settled(read), compareContents...)
}

func TestDiffTurnsOneStateIntoTheNext(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			o := ipvs.Options{Scheduler: ipvs.Schedulers[seed%uint64(len(ipvs.Schedulers))]}
			r := modeltest.NewRandom(modeltest.Seed(seed))
			history(t, r, configs[seed%uint64(len(configs))], o, 20, func(s step) { checkPlan(t, s) })
		})
	}
}

// A real server that leaves may finish its connections, and gets its weight back if it returns.
func TestARealServerThatLeavesDrains(t *testing.T) {
	service := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).UDP("dns", 53).
		Port(model.Port{Name: "sctp", Protocol: "SCTP", Port: 99})
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 5353).Port("sctp", "SCTP", 9999)
	b := modeltest.Builder(modeltest.Config(), service, slice.Ready("10.0.0.2", "10.0.0.3"))
	both := ipvs.Compile(nil, b.Snapshot().Family(model.IPv4), ipvs.Options{})
	slice.Ready("10.0.0.2").Set(b)
	one := ipvs.Compile(nil, b.Snapshot().Family(model.IPv4), ipvs.Options{})
	web := ipvs.Key{Addr: netip.MustParseAddr("172.30.0.41"), Protocol: model.TCP, Port: 80}
	gone := netip.MustParseAddrPort("10.0.0.3:8080")

	plan := ipvs.Diff(both, one)
	testaid.Equal(t, "plan when one leaves", "ipvsadm -e -t 172.30.0.41:80 -r 10.0.0.3:8080 -m -w 0, and when idle -d\n"+
		"ipvsadm -d -u 172.30.0.41:53 -r 10.0.0.3:5353\nipvsadm -d --sctp-service 172.30.0.41:99 -r 10.0.0.3:9999\n",
		ipvssim.Text(plan))
	content := both.Content()
	apply(t, content, plan)
	testaid.Equal(t, "weight of what drains", 0, content.Servers[web].Real[gone])

	plan = ipvs.Diff(one, both)
	testaid.Equal(t, "plan when it comes back", "ipvsadm -a -t 172.30.0.41:80 -r 10.0.0.3:8080 -m -w 1\n"+
		"ipvsadm -a -u 172.30.0.41:53 -r 10.0.0.3:5353 -m -w 1\n"+
		"ipvsadm -a --sctp-service 172.30.0.41:99 -r 10.0.0.3:9999 -m -w 1\n", ipvssim.Text(plan))
	apply(t, content, plan)
	testaid.Equal(t, "weight of what is back", 1, content.Servers[web].Real[gone])

	// Another process finds it draining, and leaves it so.
	apply(t, content, ipvs.Diff(both, one))
	testaid.Equal(t, "plan of another process", "",
		ipvssim.Text(ipvs.DiffContent(content, ipvs.Compile(nil, b.Snapshot().Family(model.IPv4), ipvs.Options{}))))

	// The scheduler dh would refuse all clients of a real server that drains.
	dh := ipvs.Options{Scheduler: "dh"}
	plan = ipvs.Diff(ipvs.Compile(nil, modeltest.Snapshot(modeltest.Config(), service, slice.Ready("10.0.0.2", "10.0.0.3")).Family(model.IPv4), dh),
		ipvs.Compile(nil, b.Snapshot().Family(model.IPv4), dh))
	for _, op := range plan {
		if strings.Contains(op.Command, "-w 0") {
			t.Errorf("with dh: %v", op.Command)
		}
	}
}

// Servers of others are left alone.
func TestAStartLeavesWhatIsForeign(t *testing.T) {
	o := ipvs.Options{ExcludeCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	state := ipvs.Compile(nil, modeltest.Snapshot(modeltest.Config(), modeltest.OurNode()).Family(model.IPv4), o)
	content := state.Content()
	theirs := []ipvs.Key{
		{Addr: netip.MustParseAddr("192.0.2.1"), Protocol: model.TCP, Port: 80},
	}
	left := []ipvs.Key{
		{Addr: netip.MustParseAddr("198.51.100.1"), Protocol: model.TCP, Port: 80},
	}
	for _, k := range append(left, theirs...) {
		content.Servers[k] = ipvs.Server{Scheduler: "rr"}
	}
	apply(t, content, ipvs.DiffContent(content, state))
	for _, k := range theirs {
		if _, ok := content.Servers[k]; !ok {
			t.Errorf("%v is gone, which was somebody else's", k)
		}
	}
	testaid.Equal(t, "servers left", len(theirs), len(content.Servers))
}

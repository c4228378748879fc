package model_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// tablePort returns the service port of web, which a lookup table serves.
func tablePort(t *testing.T, s *model.Snapshot) *model.ServicePort {
	t.Helper()
	for sp := range s.Family(model.IPv4).ServicePorts() {
		return sp
	}
	t.Fatal("there is no service port")
	return nil
}

func podSlice(pods []int) modeltest.Slice {
	s := modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080)
	for _, p := range pods {
		s = s.Endpoint(netip.AddrFrom4([4]byte{10, 0, byte(p / 250), byte(2 + p%250)}).String())
	}
	return s
}

// Two nodes of which one saw all changes, and the other the last state alone, have the same table.
func TestTableForgetsHistory(t *testing.T) {
	config := modeltest.Config()
	config.TableSize = 251
	service := web().Algorithm("maglev")
	r := rand.New(rand.NewPCG(1, 2))
	old := modeltest.Builder(config, service)
	for step := range 200 {
		pods := r.Perm(80)[:r.IntN(80)]
		podSlice(pods).Set(old)
		seen := tablePort(t, old.Snapshot())
		slices.Reverse(pods)
		fresh := tablePort(t, modeltest.Snapshot(config, service, podSlice(pods)))
		if !slices.Equal(seen.Table(model.Cluster), fresh.Table(model.Cluster)) {
			t.Fatalf("step %d: the tables of %d endpoints differ", step, len(pods))
		}
		want := seen.SlotCount(model.Cluster)
		if len(pods) < 2 {
			want = 0
		}
		if want != len(seen.Table(model.Cluster)) || want != 0 && want < 4*len(pods) {
			t.Fatalf("%d slots for %d endpoints, and a table of %d", want, len(pods), len(seen.Table(model.Cluster)))
		}
	}
}

// The budget of entries counts slots; a Service whose tables do not fit has smaller ones, or none.
func TestBudgetOfTables(t *testing.T) {
	config := modeltest.Config()
	config.TableSize = 1000
	for _, tt := range []struct {
		entries int
		want    string
		slots   int
	}{{2000, " maglev", 1000}, {1999, " maglev", 250}, {499, " maglev", 62}, {123, " random", 0}} {
		t.Run(fmt.Sprint(tt.entries), func(t *testing.T) {
			config.Budgets.Entries = tt.entries
			s := modeltest.Snapshot(config, web().External("192.168.99.41").Algorithm("maglev"), podSlice([]int{0, 1}))
			sp := tablePort(t, s)
			slots := len(sp.Table(model.Cluster))
			if got := " " + sp.Algorithm.String(); got != tt.want || slots != tt.slots {
				t.Errorf("got%s with %d slots, want%s with %d", got, slots, tt.want, tt.slots)
			}
			said := fmt.Sprint(s.Problems)
			if over := strings.Contains(said, "lookup tables times slots"); over != (tt.slots == 0) {
				t.Errorf("problems: %s", said)
			}
		})
	}
}

func TestChosen(t *testing.T) {
	config := modeltest.Config()
	for _, a := range []string{"maglev", "maglev-port", "random"} {
		s := modeltest.Snapshot(config, web().Algorithm(a), podSlice([]int{0, 1, 2}))
		c := model.Connection{
			Source: netip.MustParseAddr("203.0.113.9"), Dest: netip.MustParseAddrPort("172.30.0.41:80"), Protocol: model.TCP,
		}
		all := map[netip.AddrPort]bool{}
		for port := range uint16(100) {
			c.SourcePort = port
			d := model.Decide(s, c)
			if t, ok := d.Chosen(); ok {
				all[t.Addr] = true
			}
		}
		if want := map[string]int{"maglev": 1, "maglev-port": 3}[a]; len(all) != want {
			t.Errorf("%s: the ports of a client reach %v, want %d endpoints", a, all, want)
		}
	}
}

package conntrack

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

const grace = 30 * time.Second

func graceful(s modeltest.Service) modeltest.Service { return s.ConnectionGrace(grace.String()) }

// step is something that happens at a time, and what a pass then deletes.
type step struct {
	at      time.Duration
	name    string
	change  func(c *cluster)
	deleted []string
}

func TestConnectionsMayGoOnForAWhile(t *testing.T) {
	nothing := func(*cluster) {}
	pods := func(n ...int) func(*cluster) {
		return func(c *cluster) { set(c, dnsSlices(nil, n...)...) }
	}
	draining := func(c *cluster) {
		set(c, dnsSlices([]func(*model.SliceEndpoint){modeltest.Conditions(false, true, true)}, 2)...)
	}
	gone2, gone3 := toDNS("tcp", 2), toDNS("tcp", 3)
	tests := []struct {
		name  string
		with  modeltest.Service
		also  []string // flows, besides those to pods 2 and 3
		steps []step
	}{
		{"never, by default", dns(), nil, []step{
			{0, "another pod", pods(3), nil},
			{time.Hour, "later", nothing, nil},
			{time.Hour, "deleted", func(c *cluster) { dns().Delete(c.Builder) }, nil},
			{2 * time.Hour, "later", nothing, nil},
		}},
		{"after the grace", graceful(dns()), nil, []step{
			{0, "another pod", pods(3), nil},
			{grace - 1, "not yet", nothing, nil},
			{grace, "over", nothing, gone2},
		}},
		{"each by itself", graceful(dns()), nil, []step{
			{0, "one goes", pods(3), nil},
			{grace / 2, "the other goes", pods(), nil},
			{grace, "the first's time is over", nothing, gone2},
			{grace * 3 / 2, "the other's", nothing, gone3},
		}},
		{"it comes back", graceful(dns()), nil, []step{
			{0, "another pod", pods(3), nil},
			{grace / 2, "both", pods(2, 3), nil},
			{grace, "nobody's time is over", nothing, nil},
			{grace, "it goes again", pods(3), nil},
			{grace * 3 / 2, "not yet", nothing, nil},
			{grace * 2, "over", nothing, gone2},
		}},
		{"while it drains, it serves", graceful(dns()), nil, []step{
			{0, "draining", draining, nil},
			{grace, "it still is", nothing, gone3}, // which left at once
			{grace * 2, "it ends", pods(), nil},
			{grace * 3, "over", nothing, gone2},
		}},
		{"it drains beside another", graceful(dns()), nil, []step{
			{0, "draining", func(c *cluster) {
				s := dnsSlices([]func(*model.SliceEndpoint){modeltest.Conditions(false, true, true)}, 2)
				set(c, s[0].(modeltest.Slice).Endpoint("10.0.0.3"), s[1].(modeltest.Slice).Endpoint("fd00:10::3"))
			}, nil},
			{grace, "it ends", pods(3), nil},
			{grace * 2, "over", nothing, gone2},
		}},
		{"many at once", graceful(dns()), nil, []step{
			{0, "they come", pods(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), nil},
			{1, "they go", pods(3), nil},
			{grace + 1, "over", nothing, gone2},
		}},
		{"the Service is deleted", graceful(dns()), nil, []step{
			{0, "deleted", func(c *cluster) { dns().Delete(c.Builder) }, nil},
			{grace, "over", nothing, slices.Concat(gone2, gone3)},
		}},
		{"the grace is taken back", graceful(dns()), nil, []step{
			{0, "another pod", pods(3), nil},
			{grace / 2, "as long as they like", func(c *cluster) { set(c, dns()) }, nil},
			{grace * 2, "later", nothing, nil},
		}},
		{"the grace comes later", dns(), toDNS("tcp", 9), []step{
			{0, "another pod", pods(3), nil},
			{time.Hour, "grace", func(c *cluster) { set(c, graceful(dns())) }, nil},
			{time.Hour + grace - 1, "not yet", nothing, nil},
			{time.Hour + grace, "over", nothing, slices.Concat(gone2, toDNS("tcp", 9))},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := modeltest.Moment(0)
			c := newCluster(append(dnsSlices(nil, 2, 3), tt.with)...)
			c.apply(start.Add(-2 * grace))
			c.pass(t, start.Add(-grace))
			live := slices.Concat(gone2, gone3, toDNS("tcp", 0), tt.also)
			for _, s := range tt.steps {
				now := start.Add(s.at)
				s.change(c)
				c.apply(now)
				c.wantPass(t, fmt.Sprint(s.at, " ", s.name), now, s.deleted, live)
				live = slices.DeleteFunc(live, func(f string) bool { return slices.Contains(s.deleted, f) })
			}
		})
	}
}

// To whom connections went before this process, is not known. They get the grace, too.
func TestConnectionsFromBeforeGetTheGrace(t *testing.T) {
	start := modeltest.Moment(0)
	c := newCluster(append(dnsSlices(nil, 2), graceful(dns()))...)
	flows := slices.Concat(toDNS("tcp", 0), toDNS("tcp", 2), toDNS("tcp", 9), toDNS("sctp", 9))
	c.apply(start)
	c.wantPass(t, "not yet", start.Add(grace-1), nil, flows)
	c.wantPass(t, "over", start.Add(grace), slices.Concat(toDNS("tcp", 9), toDNS("sctp", 9)), flows)
}

package kernel

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
)

const (
	clusterClients = "affinity-default/web/tcp/http"
	localClients   = "local-affinity-default/web/tcp/http"
)

var listedClient = regexp.MustCompile(`([0-9a-f.:]+) timeout (\w+) expires (\w+) : ([0-9a-f.:]+) \. (\d+)`)

// mustRemember compares a map with what should be in it, or should have been some time
// ago: since is when the clients were noted.
func (n netns) mustRemember(t testing.TB, f model.Family, name string, since time.Time, want ...noted) {
	t.Helper()
	got := n.clients(t, f, name)
	passed := time.Since(since)
	for _, w := range want {
		a := clientOf(f, w.client)
		c, ok := got[a]
		delete(got, a)
		pod := strings.NewReplacer("[", "", "]:", ".", ":8080", ".8080").Replace(podOf(f, w.pod).String())
		const tick = 20 * time.Millisecond // the kernel counts in ticks of 10 ms at most
		switch {
		case !ok:
			t.Errorf("%v: %s: client %v is forgotten", f, name, a)
		case c.pod != pod:
			t.Errorf("%v: %s: client %v is sent to %s, want %s", f, name, a, c.pod, pod)
		case c.lasts != w.lasts || c.left > w.left+tick || c.left < w.left-passed-tick:
			t.Errorf("%v: %s: client %v has %v of %v left, want %v of %v less the %v since", f, name, a, c.left, c.lasts, w.left, w.lasts, passed)
		}
	}
	if len(got) > 0 {
		t.Errorf("%v: %s: these should be forgotten: %v", f, name, got)
	}
}

func TestClientsOfAGoneEndpointAreForgotten(t *testing.T) {
	n := newNetNS(t)
	s := newSticky(time.Hour)
	b := open(t, n)
	apply(t, b, s.builder.Snapshot())
	since := time.Now()
	two, three, four := noted{1, 2, time.Hour, 50 * time.Minute}, noted{2, 3, time.Hour, 40 * time.Minute}, noted{3, 4, time.Hour, 30 * time.Minute}
	for _, f := range model.Families {
		note(t, b, f, clusterClients, two, three, four)
		note(t, b, f, localClients, two, three)
	}
	check := func(cluster, local []noted) {
		t.Helper()
		apply(t, b, s.builder.Snapshot())
		for _, f := range model.Families {
			n.mustRemember(t, f, clusterClients, since, cluster...)
			n.mustRemember(t, f, localClients, since, local...)
		}
		mustMatch(t, n, s.builder.Snapshot())
	}
	check([]noted{two, three, four}, []noted{two, three})
	s.pods(2, 3, 4, 5)
	check([]noted{two, three, four}, []noted{two, three})
	s.pods(2, 4, 5)
	check([]noted{two, four}, []noted{two})
	// The other pod of this node moves: it is still one of the cluster's.
	s.moved[2] = "node-2"
	s.pods(2, 4, 5)
	check([]noted{two, four}, nil)
	s.pods()
	check(nil, nil)
}

func TestAChangedTimeoutCountsFromTheLastConnection(t *testing.T) {
	const second = time.Second
	// Seen 1, 25 and 50 seconds ago.
	before := []noted{{1, 2, 60 * second, 59 * second}, {2, 3, 60 * second, 35 * second}, {3, 4, 60 * second, 10 * second}}
	for _, tt := range []struct {
		timeout time.Duration
		want    []noted
	}{
		{90 * second, []noted{{1, 2, 90 * second, 89 * second}, {2, 3, 90 * second, 65 * second}, {3, 4, 90 * second, 40 * second}}},
		// Those that were seen too long ago: no longer than before.
		{40 * second, []noted{{1, 2, 40 * second, 39 * second}, {2, 3, 40 * second, 15 * second}, {3, 4, 40 * second, 10 * second}}},
		{20 * second, []noted{{1, 2, 20 * second, 19 * second}, {2, 3, 20 * second, 20 * second}, {3, 4, 20 * second, 10 * second}}},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v restart %v", tt.timeout, restart), func(t *testing.T) {
				n := newNetNS(t)
				s := newSticky(60 * second)
				b := open(t, n)
				apply(t, b, s.builder.Snapshot())
				since := time.Now()
				for _, f := range model.Families {
					note(t, b, f, clusterClients, before...)
					note(t, b, f, localClients, before[:2]...)
				}
				if restart {
					if err := b.Close(); err != nil {
						t.Fatal(err)
					}
					b = open(t, n)
				}
				s.lasts(tt.timeout)
				apply(t, b, s.builder.Snapshot())
				for _, f := range model.Families {
					n.mustRemember(t, f, clusterClients, since, tt.want...)
					n.mustRemember(t, f, localClients, since, tt.want[:min(len(tt.want), 2)]...)
				}
			})
		}
	}
}

func TestTimeLeft(t *testing.T) {
	const second, millisecond = time.Second, time.Millisecond
	for _, tt := range []struct {
		name                 string
		old, left, now, want time.Duration
	}{
		{"longer", 60 * second, 10 * second, 90 * second, 40 * second},
		{"shorter", 60 * second, 50 * second, 30 * second, 20 * second},
		{"shorter, seen too long ago", 60 * second, 29 * second, 30 * second, 29 * second},
		{"seen just now, by the rules before", 60 * second, 60 * second, 30 * second, 30 * second},
		{"shorter, seen a little too long ago", 60 * second, 30*second + millisecond, 30 * second, 30 * second},
		// With less than a tick of the kernel's clock, it would have all of it.
		{"hardly any", 60 * second, millisecond, 30 * second, leastLeft},
		// By the rules behind the batch.
		{"longer, seen since", 60 * second, 90*second - millisecond, 90 * second, 90*second - millisecond},
		{"shorter, seen since", 60 * second, 30*second - 20*millisecond, 30 * second, 30*second - 20*millisecond},
		// The batch of a process that was killed before it could purge, twice.
		{"never more than all", 60 * second, 90 * second, 80 * second, 80 * second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := (client{timeout: tt.old, left: tt.left}).leftOf(tt.now); got != tt.want {
				t.Errorf("got %v; want %v", got, tt.want)
			}
		})
	}
}

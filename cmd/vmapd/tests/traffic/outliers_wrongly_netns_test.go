package traffic

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// slowly is the time that a slow endpoint takes. This node waits for a second; if it takes longer than slowest, because
// of a busy machine, it may be ejected.
const slowly, slowest = 200 * time.Millisecond, 600 * time.Millisecond

// complaint is a Service of which clients repeat packets, and of which no endpoint may be ejected.
type complaint struct {
	name    string
	pods    int    // endpoints: from pod-1 on
	silent  bool   // they drop all that comes
	drops   string // what pod-2 drops, as a rule of nft
	refuses bool   // nothing listens in pod-2
	slow    bool   // pod-2 answers late
	counted bool   // the kernel sees packets that are repeated
	wants   func(r *lab.Report) bool

	outlierService
}

func complaints() []complaint {
	answered := func(r *lab.Report) bool { return r.Answered["pod-2"] > 0 }
	unanswered := func(r *lab.Report) bool { return r.Failed[lab.Timeout] == r.Sent }
	return []complaint{
		{name: "a policy stops one client", pods: 3, drops: "ip saddr " + lab.SecondClientIP4, counted: true, wants: answered},
		{name: "an endpoint loses packets of clients", pods: 3, drops: "ip saddr 203.0.113.0/24 numgen random mod 5 0", counted: true, wants: answered},
		{name: "an endpoint refuses", pods: 3, refuses: true, wants: func(r *lab.Report) bool { return r.Failed[lab.Refused] > 0 }},
		{name: "an endpoint is slow", pods: 3, slow: true, counted: true, wants: answered},
		{name: "the only endpoint is silent", pods: 1, silent: true, counted: true, wants: unanswered},
		{name: "all endpoints are silent", pods: 3, silent: true, counted: true, wants: unanswered},
		{name: "a client loses packets", pods: 3, wants: answered},
	}
}

// prepare gives a complaint its Service, and does to its pods what it says.
func (c *complaint) prepare(t *testing.T, w *lab.World, number int) {
	t.Helper()
	c.outlierService = outlierService{
		namespace: fmt.Sprint("ns", number), number: number, port: uint16(9000 + number), nodes: map[string]string{},
	}
	for i, pod := range w.Pods()[:c.pods] {
		c.nodes[pod.Name()] = fmt.Sprint("node-", i+2)
		second := pod.Name() == "pod-2"
		if second && c.slow {
			answerLate(t, pod, c.port)
		} else if !second || !c.refuses {
			if _, err := pod.Serve(c.port); err != nil {
				t.Fatal(err)
			}
		}
		if c.silent || second && c.drops != "" {
			feedPods(t, w, fmt.Sprintf(`table inet drops-%[1]d {
				chain in { type filter hook prerouting priority -400; tcp dport %[1]d %[2]s drop; }
			}`, c.port, c.drops), pod.Name())
		}
	}
}

// load connects from two clients in turns.
func (c *complaint) load(t *testing.T, w *lab.World, rate int, lasts time.Duration) lab.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var n atomic.Int64
	return lab.Load{Rate: rate, Timeout: 1500 * time.Millisecond, Ask: func(ctx context.Context) (lab.Answer, error) {
		from := [...]string{lab.ClientIP4, lab.SecondClientIP4}[n.Add(1)%2]
		return w.Client.AskFrom(ctx, netip.MustParseAddr(from), "tcp", c.vips()[0])
	}}.Run(ctx)
}

// Clients repeat packets for many reasons. An endpoint that answers this node is none of them, and where all are silent,
// connections go on as without detection.
func TestNothingIsEjectedWrongly(t *testing.T) {
	t.Parallel()
	vmapdtest.NeedNFT(t)
	w := labtest.With(t, lab.Config{Pods: 3})
	all := complaints()
	var services []outlierService
	for i := range all {
		all[i].prepare(t, w, i+50)
		services = append(services, all[i].outlierService)
	}
	vmapdtest.Feed(t, w.Client, fmt.Sprintf(`table ip lossy {
		chain out { type filter hook output priority 0; ip daddr %[1]v numgen random mod 5 0 drop; }
		chain in { type filter hook input priority 0; ip saddr %[1]v numgen random mod 5 0 drop; }
	}`, all[len(all)-1].vips()[0].Addr()), "nft", "-f", "-")
	p := detect(t, w, services...)

	var loads sync.WaitGroup
	first, reports := make([]lab.Report, len(all)), make([]lab.Report, len(all))
	for i, c := range all {
		loads.Go(func() { first[i] = c.load(t, w, 40, 3*time.Second) })
	}
	loads.Wait()
	for i, c := range all {
		if c.slow {
			repeat(t, w, c.vips()[0])
		}
		loads.Go(func() { reports[i] = c.load(t, w, 60, time.Second) })
	}
	loads.Wait()
	n := ejected(t, w)
	counted := vmapdtest.Feed(t, w.Node, "", "nft", "list", "set", "ip", "vmapd", "unanswered")
	for i, c := range all {
		r := &reports[i]
		if c.slow && (first[i].Lost()+r.Lost() > 0 || max(first[i].Max, r.Max) > slowest) {
			t.Logf("%s: not judged, for this machine is too busy: %v, then %v", c.name, &first[i], r)
			n = 0 // perhaps this one
			continue
		}
		if !c.wants(r) {
			t.Errorf("%s: %v", c.name, r)
		}
		if c.counted && !strings.Contains(counted, fmt.Sprintf(" . %d . ", c.port)) {
			t.Errorf("%s: the kernel has counted nothing: %s", c.name, counted)
		}
		if said := strings.Contains(p.Log.String(), fmt.Sprintf(":%d node=", c.port)); said != c.silent {
			t.Errorf("%s: the log says that it is silent: %v", c.name, said)
		}
	}
	if n > 0 {
		t.Errorf("%d endpoints are ejected", n)
	}
}

// repeat sends the first packets of connections, and repeats each of them twice before a slow endpoint answers.
func repeat(t *testing.T, w *lab.World, to netip.AddrPort) {
	t.Helper()
	const syn = 2
	from := netip.MustParseAddr(lab.ClientIP4)
	c := dialRaw(t, w.Client, from, to.Addr())
	for range 3 {
		for port := range uint16(20) {
			s := segment{from: netip.AddrPortFrom(from, 2000+port), to: to, seq: 1, flags: syn}
			if _, err := c.Write(s.marshal()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// answerLate accepts connections to a port late, and then answers as other pods do.
func answerLate(t *testing.T, pod *lab.Pod, port uint16) {
	t.Helper()
	const fin, syn, push, ack = 1, 2, 8, 16
	vmapdtest.Feed(t, pod.Namespace, fmt.Sprintf(`table inet late {
		chain out { type filter hook output priority 0; tcp sport %d tcp flags & rst == rst drop; }
	}`, port), "nft", "-f", "-") // the kernel knows of no server
	c := sniff(t, pod.Namespace, pod.IP4)
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, at, err := c.ReadFromIP(b)
			if err != nil {
				return // the test has ended
			}
			if n < tcpHeaderLen || binary.BigEndian.Uint16(b[2:]) != port {
				continue
			}
			a, _ := netip.AddrFromSlice(at.IP)
			client := netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b))
			seq, data := binary.BigEndian.Uint32(b[4:]), n-int(b[12]>>4)*4
			s := segment{from: netip.AddrPortFrom(pod.IP4, port), to: client, seq: 1, ack: seq + 1, flags: syn | ack}
			late := slowly
			switch {
			case data > 0:
				s.seq, s.ack, s.flags, s.payload = 2, seq+uint32(data), fin|push|ack, fmt.Sprintf("%s %v\n", pod.Name(), client)
				late = 0
			case b[13] != syn:
				continue
			}
			time.AfterFunc(late, func() { _, _ = c.WriteToIP(s.marshal(), at) })
		}
	}()
}

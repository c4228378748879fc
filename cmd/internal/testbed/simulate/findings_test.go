package simulate

import (
	"io"
	"testing"

	"github.com/vmapd/vmapd/model"
)

// findings are short lives that failed once, and the lesson of each.
var findings = []struct {
	name string
	life Life
}{
	// The checks' own fault. After a failure in one family, only that family's table is compared with the kernel. A program
	// that changed both tables in between is noticed in that one alone, so that the success of the whole Apply does
	// not mean that the other table is right: for that, both must have been compared since.
	{"somebody meddles between a failure and the retry", Life{
		Node{Config: model.Config{NodeName: "node-1", Algorithm: model.RoundRobin, DropInvalid: true}, Before69: true, Before63: true, PieceSize: 1},
		[]Step{
			{Start, 0x0b3b456387547534},
			{Fault, 0x1d69e33c5c5e1fdc},
			{Deliver, 0x6c91f7a8adeb62b6},
			{Deliver, 0x6ba8b6c1a8e22af3},
			{Deliver, 0xc42a896352c5dd38},
			{Deliver, 0xa9824ee96d866c7f},
			{Meddle, 0xb1c1d4db303f4681},
			{Settle, 0},
		},
	}},
	// The checks' own fault, and a limit of the daemon. Each of three lists of a table in a row lacked something, and said so: the
	// third one is believed, because other tables may change all the time. While the other family is tried again, this one is
	// not compared, and is wrong until the comparison of each hour.
	{"a table is read with holes three times", NewLife(479, 250)},
	// The checks' own fault. A packet on its way notes a client again with an endpoint that has just left the list of the cluster, but
	// is still in that of the node. If the answer to the batch is lost, the client goes there until the retry: the
	// set of endpoints that are gone leaves out those of either list.
	{"a client comes back to an endpoint of the other list", NewLife(556, 250)},
	// A known limit: a client of UDP that a packet on its way notes again may come back to an endpoint that is gone, until the
	// purge, see nft.Batch.Forgotten.
	{"a client of UDP comes back", NewLife(726, 250)},
	// The checks' own fault: a multicast address is no endpoint, so that one that is about to end was rightly used.
	{"a multicast address is ready", NewLife(2065, 250)},
	// The daemon's fault, mended: in a batch in pieces, a Service went before its external IP became the cluster IP of a
	// Service without ports, and packets to it passed untouched in between (othersClusterIPs in nft/split.go).
	{"an external IP becomes a cluster IP without ports", NewLife(1121, 250)},
}

func TestFindings(t *testing.T) {
	for _, f := range findings {
		t.Run(f.name, func(t *testing.T) {
			if r := play(t, f.life, io.Discard); r.Err != nil {
				t.Errorf("after step %d: %v", r.Steps, r.Err)
				report(t, f.life)
			}
		})
	}
}

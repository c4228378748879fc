package nft

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Timeout is a conntrack timeout policy, an object of a table. A rule gives it to new connections, see [SetTimeout]: an
// entry without an answer then ends so soon that TCP's next packet is a first packet again, for which an endpoint is
// chosen anew. For other states, the kernel copies its settings when it makes the object, and does not look at them
// again.
type Timeout struct {
	Name       string
	Protocol   model.Protocol
	Unanswered uint32 // in seconds
	Comment    string
}

// copied are the settings below net/netfilter that the kernel copies, first that of connections without an answer.
var copied = map[model.Protocol][]string{
	model.TCP: {
		"nf_conntrack_tcp_timeout_syn_sent", "nf_conntrack_tcp_timeout_syn_recv", "nf_conntrack_tcp_timeout_established",
		"nf_conntrack_tcp_timeout_fin_wait", "nf_conntrack_tcp_timeout_close_wait", "nf_conntrack_tcp_timeout_last_ack",
		"nf_conntrack_tcp_timeout_time_wait", "nf_conntrack_tcp_timeout_close", "nf_conntrack_tcp_timeout_max_retrans",
		"nf_conntrack_tcp_timeout_unacknowledged",
	},
	model.UDP: {"nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"},
}

// Names of the timeout policies, behind which a hash stands where the settings of a node are known.
const (
	RetryTCP = "retry-tcp"
	RetryDNS = "retry-dns"
)

// RetryTimeouts returns the policies of connections that are retried. setting returns a setting of the node by its name
// below net/netfilter, in seconds; nil: no node is known. The kernel can't change a policy, so that other settings make
// one of another name.
func RetryTimeouts(setting func(name string) (seconds uint32, ok bool)) []Timeout {
	timeout := func(name string, p model.Protocol, unanswered time.Duration, packet string) Timeout {
		const comment = "without an answer in this time, the client's next %s gets an endpoint chosen anew"
		t := Timeout{name, p, uint32(unanswered / time.Second), fmt.Sprintf(comment, packet)}
		if setting == nil {
			return t
		}
		settings := make([]uint32, len(copied[p]))
		for i, name := range copied[p] {
			seconds, ok := setting(name)
			if settings[i] = seconds; i == 0 && ok {
				t.Unanswered = min(t.Unanswered, seconds)
			}
		}
		h := fnv.New32a()
		_, _ = fmt.Fprint(h, t.Unanswered, settings) // a hash takes all
		t.Name += fmt.Sprintf("-%08x", h.Sum32())
		return t
	}
	return []Timeout{
		timeout(RetryDNS, model.UDP, model.RetryDNS, "query"), timeout(RetryTCP, model.TCP, model.RetryTCP, "SYN"),
	}
}

// Declaration returns the lines inside its braces.
func (t Timeout) Declaration(f model.Family) []string {
	state := map[model.Protocol]string{model.TCP: "syn_sent", model.UDP: "unreplied"}[t.Protocol]
	return []string{
		fmt.Sprintf("comment %q", t.Comment),
		"protocol " + t.Protocol.String(),
		"l3proto " + FamilyWord(f),
		fmt.Sprintf("policy = { %s : %d }", state, t.Unanswered),
	}
}

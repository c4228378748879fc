package nft

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Timeout is a conntrack timeout policy, an object of a table. A rule gives it to new connections, see [SetTimeout]: an
// entry without an answer then ends so soon that TCP's next packet is a first packet again, for which an endpoint is
// chosen anew.
type Timeout struct {
	Name     string
	Protocol model.Protocol
	Comment  string
	// Policy has the states that are set, in the kernel's order. For the others, the kernel copies its settings when it
	// makes the object, and does not look at them again.
	Policy []StateTimeout
}

// StateTimeout is how long an entry in a state waits for the next packet.
type StateTimeout struct {
	State   ConntrackState
	Seconds uint32
}

// ConntrackState is a state that connection tracking distinguishes, of a connection of one protocol.
type ConntrackState struct {
	Name   string // as nft has it
	Number uint16 // enum ctattr_timeout_tcp, ctattr_timeout_udp
	Sysctl string // the setting below net/netfilter; "": there is none
}

// statesOf are the states of each protocol that has a policy here. The first is that of connections without an answer.
var statesOf = map[model.Protocol][]ConntrackState{
	model.TCP: {
		{"syn_sent", 1, "nf_conntrack_tcp_timeout_syn_sent"},
		{"syn_recv", 2, "nf_conntrack_tcp_timeout_syn_recv"},
		{"established", 3, "nf_conntrack_tcp_timeout_established"},
		{"fin_wait", 4, "nf_conntrack_tcp_timeout_fin_wait"},
		{"close_wait", 5, "nf_conntrack_tcp_timeout_close_wait"},
		{"last_ack", 6, "nf_conntrack_tcp_timeout_last_ack"},
		{"time_wait", 7, "nf_conntrack_tcp_timeout_time_wait"},
		{"close", 8, "nf_conntrack_tcp_timeout_close"},
		{"syn_sent2", 9, ""},
		{"retrans", 10, "nf_conntrack_tcp_timeout_max_retrans"},
		{"unack", 11, "nf_conntrack_tcp_timeout_unacknowledged"},
	},
	model.UDP: {
		{"unreplied", 1, "nf_conntrack_udp_timeout"},
		{"replied", 2, "nf_conntrack_udp_timeout_stream"},
	},
}

// Names of the timeout policies, behind which a hash stands where the settings of a node are known.
const (
	RetryTCP = "retry-tcp"
	RetryDNS = "retry-dns"
)

// RetryTimeouts returns the policies of connections that are retried. All but the time without an answer is as the
// settings of the node are, which setting returns by their names below net/netfilter, in seconds; those that it does
// not know are left to the kernel. The kernel can't change a policy, so that other settings make one of another name.
func RetryTimeouts(setting func(name string) (seconds uint32, ok bool)) []Timeout {
	timeout := func(name string, p model.Protocol, unanswered time.Duration, packet string) Timeout {
		const comment = "without an answer in this time, the client's next %s gets an endpoint chosen anew"
		t, known := Timeout{Name: name, Protocol: p, Comment: fmt.Sprintf(comment, packet)}, false
		for i, s := range statesOf[p] {
			seconds, ok := setting(s.Sysctl)
			known = known || ok
			if i == 0 && (!ok || seconds > uint32(unanswered/time.Second)) {
				seconds, ok = uint32(unanswered/time.Second), true
			}
			if ok {
				t.Policy = append(t.Policy, StateTimeout{s, seconds})
			}
		}
		if known {
			h := fnv.New32a()
			_, _ = fmt.Fprint(h, t.Policy) // a hash takes all
			t.Name += fmt.Sprintf("-%08x", h.Sum32())
		}
		return t
	}
	return []Timeout{
		timeout(RetryDNS, model.UDP, model.RetryDNS, "query"), timeout(RetryTCP, model.TCP, model.RetryTCP, "SYN"),
	}
}

// NoSettings is a parameter for [RetryTimeouts] where no node is known.
func NoSettings(string) (uint32, bool) { return 0, false }

// Declaration returns the lines inside its braces.
func (t Timeout) Declaration(f model.Family) []string {
	states := make([]string, len(t.Policy))
	for i, s := range t.Policy {
		states[i] = fmt.Sprintf("%s : %d", s.State.Name, s.Seconds)
	}
	return []string{
		fmt.Sprintf("comment %q", t.Comment),
		"protocol " + t.Protocol.String(),
		"l3proto " + FamilyWord(f),
		"policy = { " + strings.Join(states, ", ") + " }",
	}
}

package others

import (
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
)

// Place is a chain.
type Place struct {
	Family string `json:"family"` // of the table: ip, ip6, inet, bridge, netdev
	Table  string `json:"table"`
	Chain  string `json:"chain"`
}

func (p Place) String() string { return "table " + p.Family + " " + p.Table + ", chain " + p.Chain }

// tablePrefix begins the names of our tables. The rest is the number of a connection to the
// kernel, so that several tracers can work at the same time.
const tablePrefix = "vmapd-trace-"

// IsOurs reports whether a table is one of a tracer.
func (p Place) IsOurs() bool { return strings.HasPrefix(p.Table, tablePrefix) }

// IsVmapds reports whether a chain is one of the backends nftables, iptables and ipvs.
func (p Place) IsVmapds() bool {
	return (p.Family == "ip" || p.Family == "ip6") && (p.Table == nft.TableName || strings.HasPrefix(p.Chain, "VMAPD-"))
}

// Suffixes of the names of our chains. Those at the hooks' ends have no rules: they show that a packet came that far.
const (
	beginSuffix   = "-begin"
	answersSuffix = "-answers"
	endSuffix     = "-end"

	earlyAnswersSuffix = "-early" + answersSuffix
	untrackedSuffix    = "-untracked"
	knownSuffix        = "-known"
)

// Priorities: that of connection tracking, and ours behind it.
const (
	atConntrack    = -200
	afterConntrack = atConntrack + 1
	afterAnswers   = afterConntrack + 1
)

// Begins reports whether the chain, one of ours, begins a trace: of a first packet, or of an answer.
func (e Event) Begins() (first, answer bool) {
	if !e.Place.IsOurs() || e.Kind != Rule || e.Rule == 0 {
		return false, false
	}
	return strings.HasSuffix(e.Place.Chain, beginSuffix), strings.HasSuffix(e.Place.Chain, answersSuffix)
}

// Early reports whether the event begins a trace of what goes to a client's address and port, from wherever.
func (e Event) Early() bool {
	return e.Place.IsOurs() && strings.HasSuffix(e.Place.Chain, earlyAnswersSuffix)
}

// Untracked reports whether the event shows that connection tracking ignores the packet.
func (e Event) Untracked() bool { return e.matches(untrackedSuffix) }

// Known reports whether the event shows that the packet belongs to an entry of connection tracking that has seen an
// answer. No rule translates such a packet: the entry does.
func (e Event) Known() bool { return e.matches(knownSuffix) }

// matches reports whether the rule of a chain of ours matched.
func (e Event) matches(suffix string) bool {
	return e.Place.IsOurs() && e.Kind == Rule && e.Rule != 0 && strings.HasSuffix(e.Place.Chain, suffix)
}

// Stage returns the hook of a chain of ours, and whether the chain is the last one there.
func (p Place) Stage() (hook Hook, end bool) {
	name, _, _ := strings.Cut(p.Chain, "-")
	return Hook(name), strings.HasSuffix(p.Chain, endSuffix)
}

// A Hook is a stop on a packet's path through the kernel.
type Hook string

// The hooks.
const (
	Prerouting  Hook = "prerouting"
	Input       Hook = "input"
	Forward     Hook = "forward"
	Output      Hook = "output"
	Postrouting Hook = "postrouting"
)

// hookNumber is a hook with the kernel's number.
type hookNumber struct {
	hook   Hook
	number nftables.ChainHook
	start  bool // a packet's path begins here
}

// hooks are all of them, in the order of a packet's path.
var hooks = [...]hookNumber{
	{Prerouting, unix.NF_INET_PRE_ROUTING, true},
	{Input, unix.NF_INET_LOCAL_IN, false},
	{Forward, unix.NF_INET_FORWARD, false},
	{Output, unix.NF_INET_LOCAL_OUT, true},
	{Postrouting, unix.NF_INET_POST_ROUTING, false},
}

package tracer

import (
	"strings"

	"github.com/vmapd/vmapd/nft/others"
)

// Suffixes of the names of our chains. Those at the hooks' ends have no rules: they show that a packet came that far.
const (
	beginSuffix   = "-begin"
	answersSuffix = "-answers"
	endSuffix     = "-end"

	earlyAnswersSuffix = "-early" + answersSuffix
	untrackedSuffix    = "-untracked"
	knownSuffix        = "-known"
)

// Priorities behind connection tracking.
const (
	afterConntrack = others.AtConntrack + 1
	afterAnswers   = afterConntrack + 1
)

// Begins reports whether the chain, one of ours, begins a trace: of a first packet, or of an answer.
func (e Event) Begins() (first, answer bool) {
	if !e.Place.IsTracers() || e.Kind != Rule || e.Rule == 0 {
		return false, false
	}
	return strings.HasSuffix(e.Place.Chain, beginSuffix), strings.HasSuffix(e.Place.Chain, answersSuffix)
}

// Early reports whether the event begins a trace of what goes to a client's address and port, from wherever.
func (e Event) Early() bool {
	return e.Place.IsTracers() && strings.HasSuffix(e.Place.Chain, earlyAnswersSuffix)
}

// Untracked reports whether the event shows that connection tracking ignores the packet.
func (e Event) Untracked() bool { return e.matches(untrackedSuffix) }

// Known reports whether the event shows that the packet belongs to an entry of connection tracking that has seen an
// answer. No rule translates such a packet: the entry does.
func (e Event) Known() bool { return e.matches(knownSuffix) }

// matches reports whether the rule of a chain of ours matched.
func (e Event) matches(suffix string) bool {
	return e.Place.IsTracers() && e.Kind == Rule && e.Rule != 0 && strings.HasSuffix(e.Place.Chain, suffix)
}

// Stage returns the hook of a chain of ours, and whether the chain is the last one there.
func (e Event) Stage() (hook others.Hook, end bool) {
	name, _, _ := strings.Cut(e.Place.Chain, "-")
	return others.Hook(name), strings.HasSuffix(e.Place.Chain, endSuffix)
}

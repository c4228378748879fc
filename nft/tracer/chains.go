package tracer

import (
	"strings"

	"github.com/vmapd/vmapd/nft/others"
)

// Stages of a hook, in the order of its chains of ours.
const (
	First       = "begin"         // marks a first packet
	EarlyAnswer = "early-answers" // marks what goes to a client's address and port, from wherever
	Answer      = "answers"       // marks an answer of the connection's
	Untracked   = "untracked"     // matches a packet that connection tracking ignores
	// Known matches a packet of which connection tracking has an entry that has seen an answer. No rule translates it: the
	// entry does.
	Known = "known"
	// End shows that a packet came to the end of the hook.
	End = "end"
)

// Priorities behind connection tracking.
const (
	afterConntrack = others.AtConntrack + 1
	afterAnswers   = afterConntrack + 1
)

// Stage returns the hook and the stage of a chain of ours.
func (e Event) Stage() (hook others.Hook, stage string) {
	name, stage, _ := strings.Cut(e.Place.Chain, "-")
	return others.Hook(name), stage
}

// Matches reports whether a rule of ours matched at a stage.
func (e Event) Matches(stage string) bool {
	_, at := e.Stage()
	return at == stage && e.Place.IsTracers() && e.Kind == Rule && e.Rule != 0
}

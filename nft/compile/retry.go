package compile

import (
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// The kernel chooses again: a rule that translates a first packet also shortens the life of its conntrack entry, so
// that the client's next packet, if no answer came before it, is a first packet again and meets these chains anew.
// Nothing else takes part, no process and no probe; packets of established connections meet one rule, see lateAnswer.
// "ct timeout set" acts on entries that are not confirmed yet, in nat chains, too (nft_ct_timeout_obj_eval).
//
// Where a client would get the same endpoint again, by session affinity or by a hash, the third first packet of a
// connection is the first one that gets another endpoint: one lost packet must not move a client.

// retry is the timeout policy of connections that a chain translates.
type retry uint8

const (
	retryTCP retry = iota // of TCP; of other protocols: none, in the same chains
	retryDNS              // of UDP
	noRetry
)

func retryOf(sp *model.ServicePort) retry {
	switch p := sp.Name.Protocol; {
	case p == model.TCP && sp.RetryAfter == 0:
		return noRetry
	case p == model.UDP && sp.RetryAfter > 0:
		return retryDNS
	}
	return retryTCP
}

// repeated matches from the third first packet of a connection on. A new client of a Service with affinity and a hash
// meets it twice with each packet, and gets another endpoint with its second one already.
var repeated = nft.MatchRepeated{
	Key: nft.Key{{Field: nft.SourceAddr}, {Field: nft.SourcePort}, {Field: nft.DestAddr}, {Field: nft.DestPort}},
	Set: nft.Tried, After: 2,
}

// answered forgets the first packets of a connection that is answered: its client may use the port again within the
// time of the set. The answer has its client as destination already, and the endpoint still as source.
var answered = nft.Rule{
	nft.MatchSYNACK,
	nft.Discard{
		Key: nft.Key{{Field: nft.DestAddr}, {Field: nft.DestPort}, {Field: nft.OrigDestAddr}, {Field: nft.OrigDestPort}},
		Set: nft.Tried,
	},
}

// lateAnswer drops the answer of an endpoint that comes when its connection has no conntrack entry any more, and is
// about to be retried: it would reach the client with the endpoint's own address, and the client's reset would end the
// retried connection, if the same endpoint is chosen again. A lost answer is enough: both ends repeat their packets
// after a second. Every forwarded packet meets this rule, but leaves it behind the first comparison.
var lateAnswer = nft.Rule{nft.MatchInvalid, nft.MatchSYNACK, dropPacket}

// retrying returns a rule for one protocol that translates, with the timeout policy of its connections.
func (o Options) retrying(r retry, rule nft.Rule) nft.Rule {
	first, _ := rule[0].(nft.MatchProtocol)
	retried := [...]model.Protocol{retryTCP: model.TCP, retryDNS: model.UDP, noRetry: 0}[r]
	for _, t := range o.Timeouts {
		if t.Protocol == retried && t.Protocol == first.Protocol {
			return append(nft.Rule{first, nft.SetTimeout{Timeout: t.Name}}, rule[1:]...)
		}
	}
	return rule
}

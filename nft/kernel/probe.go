package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// probeTable is never made: the batches that name it are checked and forgotten.
const probeTable = "vmapd-probe"

// feature is something the kernel must have, tried by a rule or a set that uses it. Whether a statement is allowed in a
// hook is checked at the commit: without reject in prerouting (before 5.9), the first batch is refused.
type feature struct {
	name  string
	since string
	hook  nft.Hook
	rule  nft.Rule
}

func features(f model.Family) []feature {
	// The prefix ends within a byte, so that it is compared with bitwise.
	prefix := netip.MustParsePrefix("10.0.0.0/9")
	if f == model.IPv6 {
		prefix = netip.MustParsePrefix("fd00::/9")
	}
	return []feature{
		{"nf_tables NAT chains (CONFIG_NFT_NAT)", "3.13", nft.Prerouting, nil},
		{"nft_numgen and nft_nat (CONFIG_NFT_NUMGEN, CONFIG_NFT_NAT)", "4.9", nft.Prerouting, nft.Rule{nft.DNAT{
			Key: nft.Key{{Field: nft.DestAddr}, {Field: nft.Protocol}, {Field: nft.DestPort}, {Field: nft.RandomSlot, Mod: 1}},
			Map: nft.Endpoints,
		}}},
		{"nft_hash (CONFIG_NFT_HASH)", "4.9", nft.Prerouting, nft.Rule{nft.DNAT{
			Key: nft.Key{{Field: nft.DestAddr}, {Field: nft.Protocol}, {Field: nft.DestPort}, {Field: nft.FlowSlot, Mod: 2}},
			Map: nft.Endpoints,
		}}},
		{"nft_reject (CONFIG_NFT_REJECT)", "3.14", nft.Prerouting, nft.Rule{nft.Reject{}}},
		{"nft_masq (CONFIG_NFT_MASQ)", "3.18", nft.Postrouting, nft.Rule{nft.Masquerade{}}},
		{"nft_ct with original addresses (CONFIG_NFT_CT)", "4.17", nft.Postrouting, nft.Rule{
			nft.MatchDNAT{},
			nft.InSet{Key: nft.Key{{Field: nft.OrigDestAddr}}, Set: nft.ClusterIPs},
		}},
		{"nft_fib (CONFIG_NFT_FIB_IPV4, CONFIG_NFT_FIB_IPV6)", "4.10", nft.Postrouting, nft.Rule{nft.MatchFromNode{}}},
		{"sets of ranges in concatenations (nft_set_pipapo)", "5.6", nft.Prerouting, nft.Rule{nft.InSet{
			Key: nft.Key{{Field: nft.DestAddr}, {Field: nft.DestPort}, {Field: nft.SourceAddr}},
			Set: nft.SourceRanges(model.TCP),
		}}},
		{"nft_payload and nft_bitwise", "3.13", nft.Postrouting, nft.Rule{
			nft.MatchAddr{Field: nft.SourceAddr, Prefix: prefix},
		}},
	}
}

// probeTries is how often a batch of a probe is sent after transient errors.
const probeTries = 3

// probe tries, without changing anything, all that a table of ours needs. It returns the flags with which tables can be
// made: owned, or none. The error is an [*UnsupportedError] if the kernel lacks something.
func (c *conn) probe(f model.Family) (flags uint32, err error) { return c.probeAll(f, features(f)) }

func (c *conn) probeAll(f model.Family, needed []feature) (flags uint32, err error) {
	if err := c.tryTable(0, nft.Table{Family: f}); err != nil {
		if !isLack(err) {
			return 0, err
		}
		return 0, &UnsupportedError{Feature: "nf_tables (CONFIG_NF_TABLES)", Since: "3.13", Family: f.String(), Err: err}
	}
	// All at once, because each batch that is forgotten costs the kernel a grace period of
	// some milliseconds; one by one only to find out what is missing.
	sets := compile.Options{}.LayoutSets()
	if c.tryFeatures(f, sets, needed...) != nil {
		for _, feature := range needed {
			switch err := c.tryFeatures(f, sets, feature); {
			case isLack(err):
				return 0, &UnsupportedError{Feature: feature.name, Since: feature.since, Family: f.String(), Err: err}
			case err != nil:
				return 0, err
			}
		}
	}
	switch err := c.tryTable(tableFlagOwner|tableFlagPersist, nft.Table{Family: f}); {
	case err == nil:
		return tableFlagOwner | tableFlagPersist, nil
	case !isLack(err):
		return 0, err
	}
	return 0, nil
}

// probeOptions tries the options that are wanted. A warning names what is missing.
func (b *Backend) probeOptions(st *familyState) error {
	for _, option := range [...]struct {
		wanted  bool
		probe   func(model.Family) error
		lacks   *error
		without string
	}{
		{b.counters, b.conn.probeCounters, &st.uncountable, "connections are not counted"},
		{b.fastPath, b.conn.probeFastPath, &st.slow, "no fast path"},
		{true, b.conn.probeRetry, &st.final, withoutRetry},
	} {
		if !option.wanted {
			continue
		}
		err := option.probe(st.family)
		if _, lacks := errors.AsType[*UnsupportedError](err); err != nil && !lacks {
			return err
		}
		if *option.lacks = err; err != nil {
			b.log.Warn(option.without, slog.Any("err", err))
		}
	}
	return nil
}

// probeCounters tries what compile.Options.Counters needs.
func (c *conn) probeCounters(f model.Family) error {
	look := feature{"counters in sets (nft_counter, CONFIG_NFT_COUNTER)", "5.7", nft.Prerouting, nft.Rule{nft.InSet{
		Key: nft.Key{{Field: nft.Protocol}, {Field: nft.DestPort}}, Set: nft.NodePortCounters,
	}}}
	err := c.tryFeatures(f, compile.Options{Counters: true}.LayoutSets(), look)
	if isLack(err) {
		return &UnsupportedError{
			Feature: look.name, Since: look.since, Family: f.String(), Without: "connections are not counted", Err: err,
		}
	}
	return err
}

const withoutRetry = "a connection without an answer gets no other endpoint"

// probeRetry tries what compile.Options.Timeouts needs.
func (c *conn) probeRetry(f model.Family) error {
	choice := nft.Chain{Name: "probe", Hook: nft.Prerouting, Rules: []nft.Rule{{nft.SetTimeout{Timeout: nft.RetryTCP}}, {
		nft.MatchProtocol{Protocol: model.TCP}, nft.MatchRepeated{
			Key: nft.Key{{Field: nft.SourceAddr}, {Field: nft.SourcePort}, {Field: nft.DestAddr}, {Field: nft.DestPort}},
			Set: nft.Tried, After: 1,
		},
	}}}
	err := c.tryTable(0, nft.Table{
		Family: f, Timeouts: nft.RetryTimeouts(nft.NoSettings),
		Sets: compile.Options{}.LayoutSets(), Chains: []nft.Chain{choice},
	})
	if isLack(err) {
		return &UnsupportedError{
			Feature: "conntrack timeout policies and limits (CONFIG_NF_CONNTRACK_TIMEOUT, CONFIG_NFT_LIMIT)", Since: "4.19",
			Family: f.String(), Without: withoutRetry, Err: err,
		}
	}
	return err
}

// tryTable lets the kernel check a table, with its sets, flowtables and chains.
func (c *conn) tryTable(flags uint32, t nft.Table) error {
	m := c.newBatch(t.Family, probeTable)
	m.addTable(flags)
	for i, s := range t.Sets {
		m.addSet(s, uint32(i+1))
	}
	for _, timeout := range t.Timeouts {
		m.addTimeout(timeout)
	}
	for _, f := range t.Flowtables {
		m.addFlowtable(f, nil)
	}
	for _, chain := range t.Chains {
		m.addChain(chain)
	}
	for _, chain := range t.Chains {
		for _, r := range chain.Rules {
			m.addRule(chain.Name, r)
		}
	}
	return c.check(&m)
}

// tryFeatures lets the kernel check a table that has some sets, and rules that use some features.
func (c *conn) tryFeatures(f model.Family, sets []nft.Set, list ...feature) error {
	t := nft.Table{Family: f, Sets: sets}
	for i, feature := range list {
		chain := nft.Chain{Name: fmt.Sprintf("probe-%d", i), Hook: feature.hook}
		if feature.rule != nil {
			chain.Rules = []nft.Rule{feature.rule}
		}
		t.Chains = append(t.Chains, chain)
	}
	return c.tryTable(0, t)
}

// check lets the kernel check a batch, some times if it could not.
func (c *conn) check(m *messages) error {
	var err error
	for range probeTries {
		if err = c.try(m); !isTransient(err) {
			return err
		}
	}
	return fmt.Errorf("probe the kernel: %w", err)
}

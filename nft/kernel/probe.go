package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// probeTable is never made: the batches that name it are checked and forgotten.
const probeTable = "vmapd-probe"

// feature is something that the kernel may lack, tried by a table that uses it. Whether a statement is allowed in a
// hook is checked at the commit: without reject in prerouting (before 5.9), the first batch is refused.
type feature struct {
	name    string
	since   string
	without string // the consequence; "": other backends must be used
	table   nft.Table
	file    string // that the kernel has with it; "": none
}

// needs is a feature that a rule uses, in a table with the sets that all tables have.
func needs(name, since string, hook nft.Hook, r ...nft.Statement) feature {
	chain := nft.Chain{Name: "probe", Hook: hook, Rules: []nft.Rule{r}}
	return feature{
		name: name, since: since,
		table: nft.Table{Sets: compile.Options{}.LayoutSets(), Chains: []nft.Chain{chain}},
	}
}

// features are those that all tables need.
func features(f model.Family) []feature {
	// The prefix ends within a byte, so that it is compared with bitwise.
	prefix := netip.MustParsePrefix("10.0.0.0/9")
	if f == model.IPv6 {
		prefix = netip.MustParsePrefix("fd00::/9")
	}
	slot := func(how nft.Field) nft.DNAT {
		key := nft.Key{{Field: nft.DestAddr}, {Field: nft.Protocol}, {Field: nft.DestPort}, {Field: how, Mod: 2}}
		return nft.DNAT{Key: key, Map: nft.Endpoints}
	}
	original := nft.InSet{Key: nft.Key{{Field: nft.OrigDestAddr}}, Set: nft.ClusterIPs}
	ranges := nft.InSet{
		Key: nft.Key{{Field: nft.DestAddr}, {Field: nft.DestPort}, {Field: nft.SourceAddr}}, Set: nft.SourceRanges(model.TCP),
	}
	return []feature{
		needs("nf_tables NAT chains (CONFIG_NFT_NAT)", "3.13", nft.Prerouting, nft.Verdict{Kind: nft.Return}),
		needs("nft_numgen and nft_nat (CONFIG_NFT_NUMGEN, CONFIG_NFT_NAT)", "4.9", nft.Prerouting, slot(nft.RandomSlot)),
		needs("nft_hash (CONFIG_NFT_HASH)", "4.9", nft.Prerouting, slot(nft.FlowSlot)),
		needs("nft_reject (CONFIG_NFT_REJECT)", "3.14", nft.Prerouting, nft.Reject{}),
		needs("nft_masq (CONFIG_NFT_MASQ)", "3.18", nft.Postrouting, nft.Masquerade{}),
		needs("nft_ct with original addresses (CONFIG_NFT_CT)", "4.17", nft.Postrouting, nft.MatchDNAT, original),
		needs("nft_fib (CONFIG_NFT_FIB_IPV4, CONFIG_NFT_FIB_IPV6)", "4.10", nft.Postrouting, nft.MatchFromNode),
		needs("sets of ranges in concatenations (nft_set_pipapo)", "5.6", nft.Prerouting, ranges),
		needs("nft_payload and nft_bitwise", "3.13", nft.Postrouting, nft.MatchAddr{Field: nft.SourceAddr, Prefix: prefix}),
	}
}

const withoutRetry = "a connection without an answer gets no other endpoint"

// The features that options need.

func counting() feature {
	f := needs("counters in sets (nft_counter, CONFIG_NFT_COUNTER)", "5.7", nft.Prerouting, nft.InSet{
		Key: nft.Key{{Field: nft.Protocol}, {Field: nft.DestPort}}, Set: nft.NodePortCounters,
	})
	f.table.Sets, f.without = compile.Options{Counters: true}.LayoutSets(), "connections are not counted"
	return f
}

// fastPath has a file since Linux 5.14, with the time after which an idle TCP connection leaves the fast path. Before,
// connection tracking forgot it two minutes later (flow_offload_fixup_ct).
func fastPath() feature {
	o := compile.Options{FastPath: true}
	return feature{
		name:  "flowtables that keep idle connections (nf_flow_table, nft_flow_offload, nf_flowtable_tcp_timeout)",
		since: "5.14", without: "connections take the usual path, not the fast one",
		table: nft.Table{Sets: o.LayoutSets(), Flowtables: o.Flowtables(), Chains: o.FastPathChains()},
		file:  "/proc/sys/net/netfilter/nf_flowtable_tcp_timeout",
	}
}

func retries() feature {
	const name = "conntrack timeout policies and limits (CONFIG_NF_CONNTRACK_TIMEOUT, CONFIG_NFT_LIMIT)"
	f := needs(name, "4.19", nft.Prerouting, nft.MatchProtocol{Protocol: model.TCP}, nft.MatchRepeated{
		Key: nft.Key{{Field: nft.SourceAddr}, {Field: nft.SourcePort}, {Field: nft.DestAddr}, {Field: nft.DestPort}},
		Set: nft.Tried, After: 1,
	}, nft.SetTimeout{Timeout: nft.RetryTCP})
	f.table.Timeouts, f.without = nft.RetryTimeouts(nft.NoSettings), withoutRetry
	return f
}

// probe tries, without changing anything, some features that a table needs. It returns the flags with which tables can
// be made: owned, or none. The error is an [*UnsupportedError] if the kernel lacks something.
func (c *conn) probe(f model.Family, needed []feature) (flags uint32, err error) {
	if err := c.tryFeature(f, 0, feature{name: "nf_tables (CONFIG_NF_TABLES)", since: "3.13"}); err != nil {
		return 0, err
	}
	// All at once, because each batch that is forgotten costs the kernel a grace period of
	// some milliseconds; one by one only to find out what is missing.
	all := nft.Table{Sets: compile.Options{}.LayoutSets()}
	for i, one := range needed {
		chain := one.table.Chains[0]
		chain.Name = fmt.Sprintf("probe-%d", i)
		all.Chains = append(all.Chains, chain)
	}
	if c.tryFeature(f, 0, feature{table: all}) != nil {
		for _, one := range needed {
			if err := c.tryFeature(f, 0, one); err != nil {
				return 0, err
			}
		}
	}
	const owned = tableFlagOwner | tableFlagPersist
	err = c.tryFeature(f, owned, feature{})
	if _, lacks := errors.AsType[*UnsupportedError](err); lacks {
		return 0, nil
	}
	return owned, err
}

// probeOptions tries the options that are wanted. A warning names what is missing.
func (b *Backend) probeOptions(st *familyState) error {
	for _, option := range [...]struct {
		wanted bool
		feature
		lacks *error
	}{{b.counters, counting(), &st.uncountable}, {b.fastPath, fastPath(), &st.slow}, {true, retries(), &st.final}} {
		if !option.wanted {
			continue
		}
		err := b.conn.tryFeature(st.family, 0, option.feature)
		if _, lacks := errors.AsType[*UnsupportedError](err); err != nil && !lacks {
			return err
		}
		if *option.lacks = err; err != nil {
			b.log.Warn(option.without, slog.Any("err", err))
		}
	}
	return nil
}

// tryFeature lets the kernel check a table with some flags that uses a feature, some times if the kernel could not.
func (c *conn) tryFeature(f model.Family, flags uint32, one feature) (err error) {
	m := c.newBatch(f, probeTable)
	m.addTable(flags)
	for _, s := range one.table.Sets {
		m.addSet(s)
	}
	for _, timeout := range one.table.Timeouts {
		m.addTimeout(timeout)
	}
	for _, t := range one.table.Flowtables {
		m.addFlowtable(t, nil)
	}
	for _, chain := range one.table.Chains {
		m.addChain(chain)
	}
	for _, chain := range one.table.Chains {
		for _, r := range chain.Rules {
			m.addRule(chain.Name, r)
		}
	}
	for range probeTries {
		if err = c.try(&m); !isTransient(err) {
			break
		}
	}
	if err == nil && one.file != "" {
		_, err = os.Stat(one.file)
	}
	switch {
	case isTransient(err):
		return fmt.Errorf("probe the kernel: %w", err)
	case isLack(err), errors.Is(err, fs.ErrNotExist):
		return &UnsupportedError{Feature: one.name, Since: one.since, Family: f.String(), Without: one.without, Err: err}
	}
	return err
}

// probeTries is how often a batch of a probe is sent after transient errors.
const probeTries = 3

package kernel

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/batch"
)

// probeTable is never made: the batches that name it are checked and forgotten.
const probeTable = "vmapd-probe"

// feature is something that the kernel may lack. Whether a statement is allowed in a hook is checked at the commit:
// without reject in prerouting (Linux 5.6 to 5.8), the first batch is refused.
type feature struct {
	in      string // the first operation that is refused without the feature
	name    string
	without string // the consequence; "": other backends must be used
}

const (
	retryNeeds = "conntrack timeout policies and limits (CONFIG_NF_CONNTRACK_TIMEOUT, CONFIG_NFT_LIMIT)"
	// fastPathNeeds has a file since Linux 5.14, with the time after which an idle TCP connection leaves the fast path.
	// Before, connection tracking forgot it two minutes later (flow_offload_fixup_ct).
	fastPathNeeds = "flowtables that keep idle connections (Linux 5.14, nf_flow_table, nft_flow_offload)"
	fastPathFile  = "/proc/sys/net/netfilter/nf_flowtable_tcp_timeout"

	withoutRetry    = "a connection without an answer gets no other endpoint"
	withoutFastPath = "connections take the usual path, not the fast one"
)

// features are all of them. The first one that is in an operation is the reason why that is refused.
var features = [...]feature{
	{"ct timeout", retryNeeds, withoutRetry},
	{"limit rate", retryNeeds, withoutRetry},
	{"flow", fastPathNeeds, withoutFastPath},
	{"-counters", "counters in sets (nft_counter, CONFIG_NFT_COUNTER)", ""},
	{"source-ranges", "sets of ranges in concatenations (nft_set_pipapo)", ""},
	{"fib ", "nft_fib (CONFIG_NFT_FIB_IPV4, CONFIG_NFT_FIB_IPV6)", ""},
	{"ct original", "nft_ct with original addresses (CONFIG_NFT_CT)", ""},
	{"jhash", "nft_hash (CONFIG_NFT_HASH)", ""},
	{"numgen", "nft_numgen and nft_nat (CONFIG_NFT_NUMGEN, CONFIG_NFT_NAT)", ""},
	{"masquerade fully", "nft_masq (CONFIG_NFT_MASQ)", ""},
	{"reject", "nft_reject (CONFIG_NFT_REJECT)", ""},
	{"type nat", "nf_tables NAT chains (CONFIG_NFT_NAT)", ""},
	{"", "nf_tables (CONFIG_NF_TABLES)", ""},
}

// sample is a cluster with a table that has a statement of each feature.
func sample() *model.Snapshot {
	b := model.NewBuilder(model.Config{
		Algorithm: model.MaglevPort, TableSize: model.MinTableSize, ConnectionRetry: true,
		LocalPods: model.LocalPods{
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/9"), netip.MustParsePrefix("fd00::/9")},
		},
	})
	name, port := model.NamespacedName{Namespace: "default", Name: "probe"}, int32(1)
	b.SetService(model.Service{
		NamespacedName: name, ClusterIPs: []string{"10.0.0.1", "fd00::1"}, Ports: []model.Port{{Port: port}},
	})
	for family, addrs := range map[string][2]string{"IPv4": {"10.0.0.2", "10.0.0.3"}, "IPv6": {"fd00::2", "fd00::3"}} {
		b.SetEndpointSlice(model.EndpointSlice{
			NamespacedName: model.NamespacedName{Namespace: name.Namespace, Name: strings.ToLower(family)},
			Labels:         map[string]string{model.LabelServiceName: name.Name}, AddressType: family,
			Ports:     []model.SlicePort{{Port: &port}},
			Endpoints: []model.SliceEndpoint{{Addresses: addrs[:1]}, {Addresses: addrs[1:]}},
		})
	}
	return b.Snapshot()
}

// probe finds out, without changing anything, what the kernel lacks. It returns the flags with which tables can be
// made: owned, or none. A warning names what is missing for an option, and the error, an [*UnsupportedError], what is
// missing for all tables.
func (b *Backend) probe(st *familyState) (flags uint32, err error) {
	missing := func(err error, is func(feature) bool) error {
		f := features[slices.IndexFunc(features[:], is)]
		lacks := &UnsupportedError{Feature: f.name, Family: st.family.String(), Without: f.without, Err: err}
		if f.without == "" || st.lacks[f.name] != nil { // without the option, the kernel refused it, too
			return lacks
		}
		st.lacks[f.name] = lacks
		b.wants.Log.Warn(f.without, slog.Any("err", lacks))
		return nil
	}
	if _, err := os.Stat(fastPathFile); b.wants.FastPath && err != nil {
		_ = missing(err, func(f feature) bool { return f.name == fastPathNeeds })
	}
	s := sample().Family(st.family)
	for {
		refused, err := b.conn.check(batch.DiffTable(nil, b.options(st).Compile(nil, s)), 0)
		if refused != nil {
			err = missing(refused, func(f feature) bool { return strings.Contains(refused.Step, f.in) })
		}
		if err != nil {
			return 0, err
		}
		if refused == nil {
			break
		}
	}
	const owned = tableFlagOwner | tableFlagPersist
	refused, err := b.conn.check(&batch.Batch{Family: st.family, CreateTable: true}, owned)
	if refused == nil {
		flags = owned
	}
	return flags, err
}

// check lets the kernel check a batch that makes a table with some flags, and returns what the kernel refuses. An error
// that passes is no refusal. EBUSY does not pass: Linux before 4.18 allows one NAT hook only, of nftables or of
// iptables.
func (c *conn) check(b *batch.Batch, flags uint32) (refused *BatchError, err error) {
	m, ops := c.encode(b, probeTable, flags, elementsPerMessage)
	err = c.explain(c.try(&m), b.Family, ops)
	if refused, isReply := errors.AsType[*BatchError](err); isReply && !isTransient(err) {
		return refused, nil
	}
	return nil, err
}

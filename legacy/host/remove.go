package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// kubeProxyChains are the beginnings of the names of kube-proxy's chains, in all its modes.
// KUBE-FIREWALL, KUBE-IPTABLES-HINT and KUBE-KUBELET-CANARY belong to kubelet.
var kubeProxyChains = []string{
	"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-NODE-PORT", "KUBE-SVC-", "KUBE-SVL-",
	"KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-", "KUBE-MARK-MASQ", "KUBE-POSTROUTING", "KUBE-FORWARD",
	"KUBE-PROXY-", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-",
}

func isKubeProxys(chain string) bool {
	return slices.ContainsFunc(kubeProxyChains, func(prefix string) bool { return strings.HasPrefix(chain, prefix) })
}

// NFT are the tables of iptables-nft, without the program: it refuses a family with a rule of nft's own.
type NFT interface {
	// Chains returns the names of a family's chains.
	Chains(model.Family) ([]string, error)
	// HasRules reports whether a chain has a rule.
	HasRules(f model.Family, table, chain string) (bool, error)
	// Remove removes chains, and the rules that lead there.
	Remove(f model.Family, theirs func(chain string) bool) error
}

// Remover removes what other backends and kube-proxy left on this node: rules of iptables-legacy by its programs.
type Remover struct {
	NFT NFT

	opened map[model.Family]*goiptables.IPTables
	listed map[model.Family]*iptables.Saved // by a Finder's Find, for the removal that follows
}

// variants of iptables.
const (
	variantNFT    = "nft"
	variantLegacy = "legacy"
)

// RemoveRules removes all rules of kube-proxy and of backends, in both variants and families, except for those of
// the backend that runs.
func (d *Finder) RemoveRules() error {
	return d.removeChains(d.Rules, func(f model.Family, variant, chain string) bool {
		return isKubeProxys(chain) || d.isLeft(f, variant, chain)
	})
}

// RemoveOwnRules removes all rules of backends, and none of kube-proxy's.
func (r *Remover) RemoveOwnRules() error {
	return r.removeChains(nil, func(_ model.Family, _, chain string) bool {
		return iptables.IsOurs(chain) || iptables.IsIPVS(chain)
	})
}

// removeChains removes the chains of the given owner in both variants and families, and the rules that lead there.
// Where the backend but has tens of thousands of chains in iptables-legacy, these are listed only if others are beside
// them.
func (r *Remover) removeChains(but *IPTables, theirs func(f model.Family, variant, chain string) bool) error {
	return r.each(func(f model.Family) error {
		return r.NFT.Remove(f, func(chain string) bool { return theirs(f, variantNFT, chain) })
	}, func(p *tables) error {
		if but.uses(p.family, variantLegacy) {
			if signs, err := p.signs(); len(signs) == 0 {
				return err
			}
		}
		saved := r.listed[p.family]
		delete(r.listed, p.family)
		return p.removeChains(saved, func(chain string) bool { return theirs(p.family, variantLegacy, chain) })
	}).join()
}

// failures are errors by the variant of iptables.
type failures map[string]error

func (f failures) join() error { return errors.Join(f[variantNFT], f[variantLegacy]) }

// each calls nft for each family, and legacy with the programs of each that has tables of iptables-legacy.
func (r *Remover) each(nft func(model.Family) error, legacy func(*tables) error) failures {
	failed := failures{}
	for _, f := range model.Families {
		p, err := r.open(f)
		if p != nil {
			err = legacy(p)
		}
		for variant, err := range map[string]error{variantNFT: nft(f), variantLegacy: err} {
			if err != nil {
				failed[variant] = errors.Join(failed[variant], fmt.Errorf("%v chains of iptables-%s: %w", f, variant, err))
			}
		}
	}
	return failed
}

// tables are those that a family has in iptables-legacy, with its programs.
type tables struct {
	*programs
	names []string
}

// open returns the tables of iptables-legacy, or nil if there are none.
func (r *Remover) open(f model.Family) (*tables, error) {
	names, err := LegacyTables(f)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	name, proto := programsOf(f)
	name += "-" + variantLegacy
	if r.opened[f] == nil {
		opened, err := openProgram(name, proto)
		if err != nil {
			return nil, err
		}
		if r.opened == nil {
			r.opened = map[model.Family]*goiptables.IPTables{}
		}
		r.opened[f] = opened
	}
	return &tables{&programs{family: f, name: name, tables: r.opened[f]}, names}, nil
}

// LegacyTables returns the names of the tables of iptables-legacy that this network namespace has.
func LegacyTables(f model.Family) ([]string, error) {
	file := "/proc/thread-self/net/ip_tables_names"
	if f == model.IPv6 {
		file = "/proc/thread-self/net/ip6_tables_names"
	}
	names, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the kernel has no iptables-legacy
	}
	return strings.Fields(string(names)), err
}

// save lists everything of all tables.
func (p *tables) save() (*iptables.Saved, error) {
	out, err := listing(context.Background(), p.name)
	if err != nil {
		return nil, err
	}
	return iptables.ParseSaved(out)
}

// removeChains removes chains, and the rules that lead there: of each table all or, after an error, none.
func (p *tables) removeChains(saved *iptables.Saved, theirs func(chain string) bool) (err error) {
	const tries = 3 // other programs may change the tables meanwhile
	for range tries {
		if saved == nil {
			if saved, err = p.save(); err != nil {
				return err
			}
		}
		remove := saved.RemoveText(theirs)
		if remove == "" {
			return nil
		}
		if _, err = p.restore(context.Background(), text(remove)); err == nil {
			return nil
		}
		saved = nil
	}
	return err
}

// signs returns chains that are there as long as kube-proxy's rules, or those of our IPVS backend, are. It does not
// list everything.
func (p *tables) signs() (chains []string, err error) {
	for _, at := range []struct{ table, chain string }{
		{"nat", kubeServices},
		{"nat", "KUBE-POSTROUTING"},
		{"filter", "KUBE-FORWARD"},
		{"nat", iptables.IPVSPrefix + "POSTROUTING"},
	} {
		there, err := p.has(at.table, at.chain)
		if err != nil {
			return nil, err
		}
		if there {
			chains = append(chains, at.chain)
		}
	}
	return chains, nil
}

// has reports whether there is a chain. To ask for a table that is not there could make it.
func (p *tables) has(table, chain string) (bool, error) {
	if !slices.Contains(p.names, table) {
		return false, nil
	}
	return p.programs.tables.ChainExists(table, chain)
}

// uses reports whether the backend's rules are in the tables of a variant.
func (b *IPTables) uses(f model.Family, variant string) bool {
	in := func(r *ruleFamily) bool { return r.family == f && r.variant() == variant }
	return b != nil && slices.ContainsFunc(b.families, in)
}

// variant returns the variant of the programs.
func (p *programs) variant() string {
	if strings.Contains(p.version, "nf_tables") {
		return variantNFT
	}
	return variantLegacy
}

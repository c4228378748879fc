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

// Remover removes what other backends and kube-proxy left on this node, with the programs of both variants of iptables.
type Remover struct {
	// NFTTables returns the names of a family's tables of nftables.
	NFTTables func(model.Family) ([]string, error)
	// Missing, unless it is nil, is called in place of an error if a variant has tables, and its programs are not
	// installed.
	Missing func(error)

	opened map[string]*goiptables.IPTables // by name
	listed map[string]*iptables.Saved      // by a Finder's Find, for the removal that follows
}

// variants of iptables.
const (
	variantNFT    = "nft"
	variantLegacy = "legacy"
)

var variants = []string{variantNFT, variantLegacy}

// iptablesTables are the tables that iptables-nft makes.
var iptablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

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
// Where the backend but has tens of thousands of chains, these are listed only if others are beside them.
func (r *Remover) removeChains(but *IPTables, theirs func(f model.Family, variant, chain string) bool) error {
	return r.each(func(p *tables) error {
		if but.uses(p.family, p.kind) {
			if signs, err := p.signs(); len(signs) == 0 {
				return err
			}
		}
		saved := r.listed[p.name]
		delete(r.listed, p.name)
		return p.removeChains(saved, func(chain string) bool { return theirs(p.family, p.kind, chain) })
	})
}

// each calls do with the programs of each family and variant that has tables, and joins the errors.
func (r *Remover) each(do func(*tables) error) error {
	var errs []error
	for _, f := range model.Families {
		for _, variant := range variants {
			p, err := r.open(f, variant)
			if p != nil {
				err = do(p)
			}
			if err != nil {
				err = fmt.Errorf("%v chains of iptables-%s: %w", f, variant, err)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// tables are those of a family and variant, with its programs.
type tables struct {
	*programs
	kind  string // the variant
	names []string
}

// open returns a variant's tables, or nil if there are none.
func (r *Remover) open(f model.Family, variant string) (*tables, error) {
	names, err := r.names(f, variant)
	names = slices.DeleteFunc(names, func(t string) bool { return !slices.Contains(iptablesTables, t) })
	if err != nil || len(names) == 0 {
		return nil, err
	}
	name, proto := programsOf(f)
	name += "-" + variant
	if r.opened[name] == nil {
		opened, err := openProgram(name, proto)
		if r.Missing != nil && LacksProgram(err) {
			r.Missing(fmt.Errorf("%v chains of iptables-%s: %w", f, variant, err))
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if r.opened == nil {
			r.opened = map[string]*goiptables.IPTables{}
		}
		r.opened[name] = opened
	}
	return &tables{&programs{family: f, name: name, tables: r.opened[name]}, variant, names}, nil
}

// names returns the names of a variant's tables.
func (r *Remover) names(f model.Family, variant string) ([]string, error) {
	if variant == variantNFT {
		return r.NFTTables(f)
	}
	return LegacyTables(f)
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
	if strings.Contains(out.String(), "is incompatible, use 'nft' tool") {
		return nil, errors.New("a table has rules of nft, and iptables-nft cannot list it")
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

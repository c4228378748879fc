package main

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/firewall"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/others"
)

const (
	// mostRules bounds how many rules of others are read in all, and mostElements those of one set.
	mostRules    = 10_000
	mostElements = 4096
)

// nfFamilies are the families of nf_tables whose chains see packets of Services.
var nfFamilies = map[byte]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_NETDEV: "netdev"}

// nfHooks are the hooks of all families but netdev, by their numbers.
var nfHooks = []firewall.Hook{firewall.Prerouting, firewall.Input, firewall.Forward, firewall.Output, firewall.Postrouting, firewall.Ingress}

// rulesReader reads the rules of others.
type rulesReader struct {
	lister others.Lister
	left   int // rules that may still be read
	unread []string
	names  map[uint32]string // of interfaces
}

// readRules returns the rules of others that packets of Services meet, and texts about those that were
// not read.
func readRules() (sets []firewall.Ruleset, unread []string, err error) {
	r := &rulesReader{left: mostRules, names: map[uint32]string{}}
	defer r.lister.Close()
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, nil, err
	}
	for _, i := range interfaces {
		r.names[uint32(i.Index)] = i.Name
	}
	for _, family := range []byte{unix.NFPROTO_NETDEV, unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		list, err := r.family(family)
		if err != nil {
			return nil, nil, fmt.Errorf("read the rules of others, family %s: %w", nfFamilies[family], err)
		}
		sets = append(sets, list...)
	}
	for _, f := range model.Families {
		tables, large, err := host.LegacyTables(f, r.left)
		if err != nil {
			return nil, nil, err
		}
		for _, name := range large {
			r.unread = append(r.unread, fmt.Sprintf("the %v table %s of iptables-legacy has more rules than vmapd reads (%d)", f, name, mostRules))
		}
		for _, t := range tables {
			set, err := firewall.FromXTables(t)
			if err != nil {
				return nil, nil, err
			}
			r.left -= int(t.NumEntries)
			sets = append(sets, set)
		}
	}
	return sets, r.unread, nil
}

// family reads the tables of a family, except vmapd's.
func (r *rulesReader) family(family byte) (sets []firewall.Ruleset, err error) {
	chains, err := r.lister.Chains(family)
	if err != nil {
		return nil, err
	}
	tables := map[string][]others.Chain{}
	var names []string
	for _, c := range chains {
		if c.Table == nft.TableName {
			continue
		}
		if tables[c.Table] == nil {
			names = append(names, c.Table)
		}
		tables[c.Table] = append(tables[c.Table], c)
	}
	for _, name := range names {
		set := firewall.Ruleset{By: "nftables", Family: nfFamilies[family], Table: name, Chains: map[string]*firewall.Chain{}}
		if err := r.table(&set, tables[name]); err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// table reads the base chains of a table that may drop a packet of Services, and the chains to which they
// lead.
func (r *rulesReader) table(set *firewall.Ruleset, chains []others.Chain) error {
	byName := map[string]others.Chain{}
	var todo []string
	for _, c := range chains {
		byName[c.Name] = c
		if c.Type == "filter" || c.Type == "route" {
			todo = append(todo, c.Name)
		}
	}
	elements := map[string]*firewall.Set{}
	for len(todo) > 0 {
		from := byName[todo[0]]
		todo = todo[1:]
		if set.Chains[from.Name] != nil {
			continue
		}
		chain := &firewall.Chain{Name: from.Name, Priority: int(from.Priority), Drops: from.Drops, Device: from.Device}
		if from.Type != "" {
			chain.Hook = hookOf(from)
		}
		set.Chains[from.Name] = chain
		if int(from.Uses) > r.left {
			chain.Unread = int(from.Uses)
			r.unread = append(r.unread, fmt.Sprintf("chain %s of table %s %s has about %d rules: it was not read (vmapd reads %d of all)", from.Name, set.Family, set.Table, from.Uses, mostRules))
			continue
		}
		var all [][]byte // sets are read after the rules, over the same connection
		if err := r.lister.Rules(from, func(expressions []byte) { all = append(all, bytes.Clone(expressions)) }); err != nil {
			return err
		}
		r.left -= len(all)
		for i, expressions := range all {
			chain.Rules = append(chain.Rules, firewall.Decode(i+1, expressions, firewall.Names{
				Set:       func(name string) *firewall.Set { return r.set(elements, from, name) },
				Interface: func(index uint32) string { return r.names[index] },
			})...)
		}
		for _, rule := range chain.Rules {
			if rule.Target != "" {
				todo = append(todo, rule.Target)
			}
		}
	}
	return nil
}

// set returns a set of a table, or nil if it has many elements.
func (r *rulesReader) set(known map[string]*firewall.Set, of others.Chain, name string) *firewall.Set {
	set, ok := known[name]
	if !ok {
		if list, err := r.lister.Elements(of.Family, of.Table, name, mostElements); err == nil && len(list) > 0 {
			set = setOf(list)
		}
		known[name] = set
	}
	return set
}

func hookOf(c others.Chain) firewall.Hook {
	if c.Family == unix.NFPROTO_NETDEV {
		if c.Hook == 0 {
			return firewall.Ingress
		}
		return ""
	}
	if int(c.Hook) < len(nfHooks) {
		return nfHooks[c.Hook]
	}
	return ""
}

// setOf returns a set from its elements, or nil if they say nothing.
func setOf(list []others.Element) *firewall.Set {
	slices.SortStableFunc(list, func(a, b others.Element) int {
		return cmp.Or(bytes.Compare(a.Key, b.Key), boolCompare(b.End, a.End))
	})
	intervals := slices.ContainsFunc(list, func(e others.Element) bool { return e.End })
	set := &firewall.Set{}
	for i, e := range list {
		if e.End {
			continue
		}
		if e.Key == nil || e.KeyEnd != nil {
			return nil
		}
		last := e.Key
		if intervals {
			last = bytes.Repeat([]byte{0xff}, len(e.Key))
			if i+1 < len(list) {
				last = before(list[i+1].Key)
			}
		}
		set.Ranges = append(set.Ranges, [2][]byte{e.Key, last})
		if e.Verdict != nil {
			v, target := firewall.DecodeVerdict(e.Verdict)
			set.Verdicts = append(set.Verdicts, firewall.SetVerdict{Verdict: v, Target: target})
		}
	}
	if set.Verdicts != nil && len(set.Verdicts) != len(set.Ranges) {
		return nil
	}
	return set
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// before returns the key before another.
func before(key []byte) []byte {
	key = bytes.Clone(key)
	for i := len(key) - 1; i >= 0; i-- {
		key[i]--
		if key[i] != 0xff {
			break
		}
	}
	return key
}

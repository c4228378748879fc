package host

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/vmapd/vmapd/legacy/iptables"
)

// hook writes the jumps that a listing lacks, unless it is nil.
func (b *IPTables) hook(ctx context.Context, f *ruleFamily, saved *iptables.Saved) (wrote bool, err error) {
	if saved == nil {
		return false, nil
	}
	jumps := saved.HookText()
	if jumps == "" {
		return false, nil
	}
	if _, err := f.restore(ctx, text(jumps)); err != nil {
		b.update(f.family, func(s *Stats) { s.failed(false) })
		return false, err
	}
	return true, nil
}

// hookFirst puts back the jumps that others have deleted, ahead of the comparison of all rules: with 10,000 Services,
// iptables-nft-save takes seconds, and the six built-in chains milliseconds. A firewall that flushes a chain of its own, as it thinks,
// leaves our chains as they are. If those are changed, too, a jump leads to what is left of them until the comparison has ended.
// Whatever fails here is left to that. iptables-legacy lists no chain without reading the whole table.
func (b *IPTables) hookFirst(ctx context.Context, f *ruleFamily) (wrote bool) {
	if f.variant() != variantNFT {
		return false
	}
	saved, err := f.builtIn()
	if err == nil {
		if jumps := saved.HookText(); jumps != "" {
			_, err = f.restore(ctx, text(jumps))
			wrote = err == nil
		}
	}
	if err != nil {
		b.log.LogAttrs(ctx, slog.LevelDebug, "jumps are looked at with all other rules", slog.String("family", f.family.String()), slog.Any("err", err))
	}
	return wrote
}

// builtIn returns the chains that have jumps, with everybody's rules.
func (p *programs) builtIn() (*iptables.Saved, error) {
	var all strings.Builder
	for _, j := range iptables.Jumps() {
		rules, err := p.tables.List(j.Table, j.Chain)
		if err != nil {
			return nil, fmt.Errorf("list chain %s of table %s: %w", j.Chain, j.Table, err)
		}
		fmt.Fprintf(&all, "*%s\n", j.Table)
		for _, rule := range rules {
			if policy, ok := strings.CutPrefix(rule, "-P "); ok {
				rule = ":" + policy // as iptables-save says it
			}
			all.WriteString(rule + "\n")
		}
	}
	return iptables.ParseSaved(strings.NewReader(all.String()))
}

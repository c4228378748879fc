package host

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/vmapd/vmapd/legacy/iptables"
)

// hook writes the jumps that a listing lacks, unless it is nil. A failure fails the Apply, and counts.
func (b *IPTables) hook(ctx context.Context, f *ruleFamily, saved *iptables.Saved) error {
	if saved == nil {
		return nil
	}
	err := f.writeJumps(ctx, saved)
	if err != nil {
		b.update(f.family, func(s *Stats) { s.failed(false) })
	}
	return err
}

// hookFirst puts back the jumps that others have deleted, ahead of the comparison of all rules: with 10,000 Services,
// iptables-nft-save takes seconds, and a listing of the six built-in chains takes milliseconds. A firewall that flushes
// PREROUTING leaves our chains as they are. If it has changed these, too, a jump leads to the rest of them until the
// comparison has ended. The comparison makes up for any failure here. iptables-legacy reads a whole table to list one
// chain, so its jumps wait.
func (b *IPTables) hookFirst(ctx context.Context, f *ruleFamily) {
	if f.variant() != variantNFT {
		return
	}
	saved, err := f.builtIn()
	if err == nil {
		err = f.writeJumps(ctx, saved)
	}
	if err != nil {
		b.log.LogAttrs(ctx, slog.LevelDebug, "jumps are looked at with all other rules", slog.String("family", f.family.String()), slog.Any("err", err))
	}
}

// writeJumps writes the jumps that a listing lacks.
func (p *programs) writeJumps(ctx context.Context, saved *iptables.Saved) error {
	jumps := saved.HookText()
	if jumps == "" {
		return nil
	}
	_, err := p.restore(ctx, text(jumps))
	return err
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

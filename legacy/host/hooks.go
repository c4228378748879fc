package host

import (
	"context"
	"errors"
	"log/slog"

	"github.com/vmapd/vmapd/legacy/iptables"
)

// hook writes the jumps that a listing lacks, unless it is nil. A failure fails the Apply, and counts.
func (b *IPTables) hook(ctx context.Context, f *ruleFamily, saved *iptables.Saved) error {
	if saved == nil {
		return nil
	}
	jumps := saved.HookText()
	if jumps == "" {
		return nil
	}
	_, err := f.restore(ctx, text(jumps))
	if err != nil {
		b.update(f.family, func(s *Stats) { s.failed(false) })
	}
	return err
}

// hookFirst puts back the jumps that others have deleted, ahead of the comparison of all rules: with 10,000 Services,
// iptables-nft-save takes seconds, and a look for six rules takes milliseconds. A firewall that flushes PREROUTING
// leaves our chains as they are. If it has changed these, too, a jump leads to the rest of them until the comparison
// has ended. The comparison makes up for any failure here. iptables-legacy reads a whole table to look for one rule,
// so its jumps wait.
func (b *IPTables) hookFirst(ctx context.Context, f *ruleFamily) {
	if f.variant() != variantNFT {
		return
	}
	var err error
	for _, j := range iptables.Jumps() {
		err = errors.Join(err, f.tables.InsertUnique(j.Table, j.Chain, 1, j.Args()...))
	}
	if err != nil {
		b.log.LogAttrs(ctx, slog.LevelDebug, "jumps are looked at with all other rules",
			slog.String("family", f.family.String()), slog.Any("err", err))
	}
}

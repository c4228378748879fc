package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// IPTables is the iptables backend. Of its methods, those that say so may be called during Apply.
type IPTables struct {
	backend
	options  iptables.Options
	families []*ruleFamily
}

// ruleFamily is the backend's knowledge about one family's rules.
type ruleFamily struct {
	*programs
	left    *iptables.Ruleset // as the last Apply left it; nil: that failed
	known   bool              // left is the node's; otherwise it is read before the next batch
	invalid uint64            // iptables.Saved.Invalid of the last listing

	noAffinity bool  // the kernel lacks xt_recent
	noSCTP     error // the kernel lacks xt_sctp
}

// OpenIPTables finds the programs, and the abilities of them and of the kernel. A family without working programs is
// left out; if neither family has any, the error says why. variants are tried one after the other: "" for the
// administrator's choice, "-legacy", "-nft"; without any, all three.
func OpenIPTables(o iptables.Options, log *slog.Logger, variants ...string) (*IPTables, error) {
	b := &IPTables{backend: backend{log: log}, options: o}
	err := b.openFamilies(variants, func(p *programs) error {
		f := &ruleFamily{programs: p, noSCTP: p.test(iptables.ProbeSCTP)}
		if err := p.test(iptables.ProbeRecent); err != nil {
			f.noAffinity = true
			log.LogAttrs(context.Background(), slog.LevelWarn,
				"session affinity is not available; load the kernel module xt_recent",
				slog.String("family", p.family.String()), slog.Any("err", err))
		}
		b.families = append(b.families, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Resync makes the next Apply read the rules first, and repair differences.
func (b *IPTables) Resync() {
	for _, f := range b.families {
		f.known = false
	}
}

// Apply makes the rules match s, with one run of iptables-restore for each family, and another if jumps are missing.
// Each table is written as a whole or not at all, filter before nat: if nat fails, connections still go where they did,
// but for addresses that the new filter refuses. The other family is not concerned.
func (b *IPTables) Apply(ctx context.Context, s *model.Snapshot) error {
	var errs []error
	for _, f := range b.families {
		err := b.applyFamily(ctx, f, s.Family(f.family))
		if !model.IsProgrammed(err) {
			err = &model.FamilyError{Family: f.family, Err: err}
			f.left, f.known = nil, false
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	b.programmed.Store(model.IsProgrammed(err))
	return err
}

func (b *IPTables) applyFamily(ctx context.Context, f *ruleFamily, s *model.FamilySnapshot) error {
	start := time.Now()
	want := iptables.Compile(f.left, s, b.optionsOf(f))
	full := !f.known
	var batch *iptables.Batch
	var saved *iptables.Saved
	var err error
	if full {
		if saved, err = f.save(ctx); err != nil {
			return err
		}
		batch = want.Repair(saved)
		foreign := f.left != nil && batch.Size() != iptables.Diff(f.left, want).Size()
		b.update(f.family, func(s *Stats) { s.read(f.invalid, saved.Invalid, foreign) })
		f.invalid = saved.Invalid
	} else {
		batch = iptables.Diff(f.left, want)
	}
	if err = b.write(ctx, f.programs, batch.Text(), !full); err != nil {
		return err
	}
	b.update(f.family, func(s *Stats) { s.applied(batch, full) })
	if full { // The jumps come last, when the chains are there.
		if err := b.write(ctx, f.programs, saved.HookText(), false); err != nil {
			return err
		}
	}
	f.left, f.known = want, true
	if size := batch.Size(); size != (iptables.Size{}) {
		b.log.Debug("applied", slog.String("family", f.family.String()),
			slog.Int("chains", size.Chains), slog.Int("rules", size.Rules), slog.Int("chains_deleted", size.Deleted),
			slog.Duration("took", time.Since(start)))
	}
	if ports := want.Lacking(); len(ports) > 0 {
		var names []string
		for name := range ports {
			names = append(names, name.String())
		}
		slices.Sort(names)
		err := fmt.Errorf("the kernel refuses service ports of SCTP (%s): %w", strings.Join(names, ", "), f.noSCTP)
		return &model.FamilyError{Family: f.family, Ports: ports, Err: err}
	}
	return nil
}

// optionsOf returns the options for a family. Its programs and kernel may lack something.
func (b *IPTables) optionsOf(f *ruleFamily) iptables.Options {
	o := b.options
	o.RandomFully, o.NoAffinity, o.NoSCTP = f.tables.HasRandomFully(), f.noAffinity, f.noSCTP != nil
	return o
}

package kernel

import (
	"context"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// Table returns a family's table as it is in the kernel now, nil if there is none, and the ruleset for s that it should
// be, nil if the kernel lacks the family. It does not wait for Apply; a change that Apply makes meanwhile may be a
// difference.
func (b *Backend) Table(f model.Family, s *model.Snapshot) (*nft.Table, *compile.Ruleset, error) {
	st := b.of(f)
	if st.lacks == nil {
		return nil, nil, nil
	}
	b.reading.Lock()
	defer b.reading.Unlock()
	table, err := b.reader.readTable(f)
	if err != nil {
		return nil, nil, err
	}
	return table, b.options(st).Adopt(table, st.read().ruleset, s.Family(f)), nil
}

// Compare returns the differences between the table that a family has now and that of s, as text; with a service port,
// those alone that its connections meet. It changes nothing.
func (b *Backend) Compare(
	_ context.Context, f model.Family, s *model.Snapshot, of *model.ServicePort,
) ([]string, error) {
	table, want, err := b.Table(f, s)
	if err != nil || want == nil {
		return nil, err
	}
	diff := batch.DiffTable(table, want)
	if rules := b.Ruleset(f); rules != nil && of != nil {
		keepOf(diff, rules.OfPort(of.Name))
	}
	if diff.Empty() {
		return nil, nil
	}
	return strings.Split(strings.TrimSpace(diff.String()), "\n"), nil
}

// keepOf removes operations for elements that a part of the table does not have. Others may concern all connections.
func keepOf(diff *batch.Batch, part *nft.Table) {
	for _, list := range [][]batch.Elements{diff.Delete, diff.Add} {
		for i := range list {
			list[i].List = slices.DeleteFunc(list[i].List, func(op nft.Element) bool {
				_, is := part.Elements[list[i].Set][op.Key]
				return !is
			})
		}
	}
}

package kernel

import (
	"fmt"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// compareWithKernel reads the kernel's table, and returns the ruleset to reach and the batch to
// send.
func (b *Backend) compareWithKernel(
	st *familyState, s *model.FamilySnapshot, options compile.Options,
) (*compile.Ruleset, *batch.Batch, error) {
	// To read the table may take a second, and to look at its owner takes no time.
	if !st.owned && st.flags != 0 && b.ownedByOther(st) {
		return nil, nil, fmt.Errorf("table %s is %w", nft.TableName, ErrOwned)
	}
	left := st.read().applied
	table, err := b.conn.readTable(st.family, options.Repair(nil, left, s))
	if err != nil {
		return nil, nil, err
	}
	want := options.Repair(table, left, s)
	if table == nil {
		return want, batch.NewTable(want, b.piece), nil
	}
	claimed, err := b.claim(st)
	if err != nil {
		return nil, nil, err
	}
	if claimed {
		return want, batch.DiffTable(table, want), nil
	}
	changes := batch.NewTable(want, replacedWhole*b.piece)
	changes.DeleteTable = true
	return want, changes, nil
}

// replacedWhole is how many pieces a table is replaced in one transaction of. A list of the elements of more would take
// more memory than all else: they come in pieces.
const replacedWhole = 32

// Compare returns the batch that would turn a family's table, as it is in the kernel now, into that of
// s. It is empty if the table is right, and nil if the kernel lacks the family. It uses a connection of its
// own and no lock of Apply, so that a change that Apply makes meanwhile may be in the batch.
func (b *Backend) Compare(f model.Family, s *model.Snapshot) (*batch.Batch, error) {
	table, want, err := b.Table(f, s)
	if err != nil || want == nil {
		return nil, err
	}
	return batch.DiffTable(table, want), nil
}

// Table returns a family's table as it is in the kernel now, and the ruleset for s that it should be. The table is nil
// if there is none, and both are if the kernel lacks the family. The rules of that ruleset are recognised. It uses a
// connection of its own and no lock of Apply.
func (b *Backend) Table(f model.Family, s *model.Snapshot) (*nft.Table, *compile.Ruleset, error) {
	st := b.of(f)
	if st == nil {
		return nil, nil, nil
	}
	options, left := b.options(st), st.read().applied
	c, err := b.dialer.dial()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = c.close() }()
	table, err := c.readTable(f, options.Repair(nil, left, s.Family(f)))
	if err != nil {
		return nil, nil, err
	}
	return table, options.Repair(table, left, s.Family(f)), nil
}

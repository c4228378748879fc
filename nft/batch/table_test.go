package batch_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// A set that an earlier version had under a name that now means another type is deleted. It is no
// reason to replace the table, with all clients that its maps remember.
func TestAnOldSetOfAnotherTypeIsDeleted(t *testing.T) {
	const old = "affinity-both-ns1/s/tcp/http" // now the name of a map
	b := modeltest.Builder(modeltest.Config(), modeltest.NewService("ns1/s").On("172.30.0.41").TCP("http", 80))
	want := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))
	table := tableOf(t, want)
	table.Sets = append(table.Sets, nft.Set{Name: old, Key: []nft.Type{nft.Addr, nft.Service}})
	changes := batch.DiffTable(table, want)
	if changes.DeleteTable {
		t.Error("the table is replaced")
	}
	equal(t, "deleted sets", []string{old}, changes.DeleteSets)
	equal(t, "operations", 1, changes.Len())
}

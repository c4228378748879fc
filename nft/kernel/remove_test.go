package kernel

import (
	"errors"
	"testing"

	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft"
)

// Tables are removed in the network namespace of the thread, unless another process owns them.
func TestRemoveTables(t *testing.T) {
	nettest.Enter(t)
	if err := RemoveTables(Options{}, nft.TableName); err != nil {
		t.Errorf("without tables: %v", err)
	}
	b := openAs(t, Options{})
	apply(t, b, exampleBuilder().Snapshot())
	if err := RemoveTables(Options{}, nft.TableName); b.Owned() != errors.Is(err, ErrOwned) {
		t.Errorf("another process owns the tables (%v): %v", b.Owned(), err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTables(Options{}, nft.TableName); err != nil {
		t.Errorf("with tables: %v", err)
	}
}

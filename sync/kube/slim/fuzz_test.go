package slim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzProtobuf reads any bytes as the standard decoder does. Where skipped fields are invalid, only that one
// refuses them. A kind that is named twice is another one to each.
func FuzzProtobuf(f *testing.F) {
	for _, o := range objectsToRead() {
		f.Add(encode(f, o))
	}
	its := serializer(f, standard)
	f.Fuzz(func(t *testing.T, data []byte) {
		got, kind, err := newReader().read(data)
		if err != nil {
			return
		}
		full, itsKind, err := its.Decode(data, nil, nil)
		if err != nil || *itsKind != *kind {
			return
		}
		if diff := cmp.Diff(wanted(full), got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("-standard +ours:\n%s", diff)
		}
	})
}

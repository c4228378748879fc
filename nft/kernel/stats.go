package kernel

import (
	"time"

	"github.com/vmapd/vmapd/model"
)

// Stats count what was done for one family since Open.
type Stats struct {
	Batches    uint64
	Operations uint64
	// Bytes are of the messages sent to the kernel, those of batches it refused included.
	Bytes uint64
	// Rejected is how many service ports the kernel refuses now.
	Rejected int
	// Repairs counts how often a comparison with the kernel found that others had changed
	// our table, and that was put right. A comparison that brings changes of our own besides
	// does not count.
	Repairs uint64
}

// Stats returns what was done for a family. It may be called at any time.
func (b *Backend) Stats(f model.Family) Stats {
	for _, st := range b.families {
		if st.family == f {
			return st.read().stats
		}
	}
	return Stats{}
}

// Commit is a batch that the kernel carried out.
type Commit struct {
	Family     model.Family
	Operations int
	Bytes      int           // of the messages sent to the kernel
	Took       time.Duration // from the snapshot on: to compile it, to compare and to send
	Full       bool          // the comparison was with what is really there
}

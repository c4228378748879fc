package kernel

import (
	"time"

	"github.com/vmapd/vmapd/model"
)

// Stats count the batches of one family since Open.
type Stats struct {
	Batches    uint64
	Operations uint64
	// Bytes are those of the messages sent to the kernel, including refused batches.
	Bytes uint64
	// Rejected is the number of service ports that the kernel refuses now.
	Rejected int
	// Repairs is the number of comparisons with the kernel that repaired changes of others. A
	// comparison that also brings changes of our own is not included.
	Repairs uint64
}

// Stats returns the statistics of a family. It may be called at any time.
func (b *Backend) Stats(f model.Family) Stats {
	if st := b.of(f); st != nil {
		return st.read().stats
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

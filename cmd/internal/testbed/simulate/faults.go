package simulate

import (
	"bytes"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft/nftfake"
)

// faults are those that the kernel will have, and the death of the daemon.
type faults struct {
	at    map[int]nftfake.Fault // by the number of the message
	storm *rand.Rand            // nil: none
	until time.Time             // of the storm
	rate  int                   // one of so many messages fails in it
	only  nftfake.Fault         // in it; NoFault: any

	unwanted []byte // an address: elements with it are refused; nil: none

	kill   int  // the daemon dies with so many further sendings; 0: it lives
	behind bool // the last sending reaches the kernel
}

// mostRefusing are the messages about elements of which each second one is refused, until the Apply ends.
const mostRefusing = 20

// fault chooses the fault of a message. The kernel calls it.
func (w *world) fault(r nftfake.Request) nftfake.Fault {
	if w.looking.Load() {
		return nftfake.NoFault
	}
	n := int(w.messages.Add(1))
	w.faulty.Lock()
	defer w.faulty.Unlock()
	f := w.faults.at[n]
	if f == nftfake.NoFault && w.faults.storms() {
		if f = w.faults.only; f == nftfake.NoFault {
			f = nftfake.Faults[w.faults.storm.IntN(len(nftfake.Faults))]
		}
	}
	switch {
	case f != nftfake.Busy:
	case bytes.Contains(r.Data, []byte("vmapd-probe")):
		f = nftfake.NoMemory // nothing is in use yet: a busy kernel lacks something, see isLack in nft/kernel
	case r.Type == unix.NFT_MSG_NEWSETELEM:
		if w.refusals++; w.refusals%4 == 0 {
			w.refusing.Store(mostRefusing)
		}
	}
	if r.Type == unix.NFT_MSG_NEWSETELEM {
		a := w.faults.unwanted
		refuse := f == nftfake.NoFault && a != nil && bytes.Contains(r.Data, a)
		// The backend sends the elements again, one to a message, and goes on without the Service that is refused then.
		if w.refusing.Load() > 0 && w.refusing.Add(-1)%2 > 0 {
			refuse = true
		}
		if refuse {
			f = nftfake.Full
			w.refused.Store(true)
		}
	}
	if f == nftfake.Interrupted && r.Type == unix.NFT_MSG_GETSETELEM {
		w.lacked.Store(true)
	}
	if f != nftfake.NoFault {
		w.trouble.Add(1)
		w.note("message %d, of type %d, has fault %d", n, r.Type, f)
	}
	return f
}

// storms reports whether a message fails in a storm.
func (f *faults) storms() bool {
	return f.storm != nil && time.Now().Before(f.until) && f.storm.IntN(f.rate) == 0
}

// kills reports whether the daemon is dead, before or behind a sending. The caller holds the world's mutex.
func (w *world) kills(d *daemon, behind bool) bool {
	w.faulty.Lock()
	defer w.faulty.Unlock()
	f := &w.faults
	if !d.dead && !w.looking.Load() && f.kill > 0 && f.behind == behind {
		if f.kill--; f.kill == 0 {
			d.dead = true
			d.cancel()
			w.note("daemon %d dies", d.number)
		}
	}
	return d.dead
}

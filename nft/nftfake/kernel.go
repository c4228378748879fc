package nftfake

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Kernel has tables. It is safe for concurrent use; its fields must be set before.
type Kernel struct {
	OnlyBefore69  bool // it has no tables that are owned and persist
	OnlyBefore616 bool // it does not say how many elements a set has

	mu         sync.Mutex
	tables     tables
	generation uint32
	handle     uint64
	ports      uint32
	sockets    int
	requests   int
	fail       func(Request) Fault
}

// Request is a message to the kernel that neither begins nor ends a batch.
type Request struct {
	N    int    // from 1 on, since Fail
	Type uint16 // NFT_MSG_NEWSETELEM and so on
	Data []byte // behind struct nfgenmsg
}

// Fault is how a request fails.
type Fault int

// The faults.
const (
	NoFault     Fault = iota
	NoBuffers         // ENOBUFS: what is sent together does not reach the kernel
	NoMemory          // ENOMEM: the kernel gives up a batch, with an answer about its beginning
	Busy              // EBUSY: the message is refused
	Interrupted       // EINTR: the message is refused; a list lacks something and says so
	LostAnswers       // all is done, but instead of answers there is ENOBUFS
	Full              // ENFILE: the message is refused, as if it had an element for a set without room
	Invalid           // EINVAL: the message is refused
)

// Faults are those that pass.
var Faults = []Fault{NoBuffers, NoMemory, Busy, Interrupted, LostAnswers}

// Fail decides which requests fail from now on; nil: none does.
func (k *Kernel) Fail(choose func(Request) Fault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail, k.requests = choose, 0
}

// Generation is how often the tables changed.
func (k *Kernel) Generation() uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.generation
}

// TableGeneration is the generation that changed a table last; 0: there is none.
func (k *Kernel) TableGeneration(family byte, name string) uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t := k.tables[tableKey{family, name}]; t != nil {
		return t.generation
	}
	return 0
}

// Sockets is how many connections are open.
func (k *Kernel) Sockets() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sockets
}

// Owner returns the port of the connection that owns a table, or 0. It reports whether the table is there and persists
// without an owner, so that it can have one.
func (k *Kernel) Owner(family byte, name string) (port uint32, persists bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tables[tableKey{family, name}]
	if t == nil {
		return 0, false
	}
	return t.owner, t.flags&flagPersist != 0
}

// Dial returns a new connection.
func (k *Kernel) Dial() *Socket {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ports++
	k.sockets++
	return &Socket{kernel: k, port: k.ports}
}

// Socket is a connection. It is not safe for concurrent use.
type Socket struct {
	kernel *Kernel
	port   uint32
	closed bool
	queue  []datagram
}

// datagram is what Receive returns.
type datagram struct {
	b          []byte
	err        error
	isList     bool
	generation uint32
}

// Port is the number of the connection.
func (s *Socket) Port() uint32 { return s.port }

// Close ends the connection.
func (s *Socket) Close() error {
	k := s.kernel
	k.mu.Lock()
	defer k.mu.Unlock()
	if !s.closed {
		s.closed = true
		k.sockets--
	}
	for key, t := range k.tables {
		switch {
		case t.flags&flagOwner == 0 || t.owner != s.port:
		case t.flags&flagPersist == 0:
			delete(k.tables, key)
		default:
			t.flags, t.owner = t.flags&^flagOwner, 0
		}
	}
	return nil
}

// Receive reads an answer. The error is EAGAIN if there is none.
func (s *Socket) Receive() ([]byte, error) {
	if s.closed {
		return nil, unix.EBADF
	}
	if len(s.queue) == 0 {
		return nil, unix.EAGAIN
	}
	d := s.queue[0]
	s.queue = s.queue[1:]
	if d.isList && d.generation != s.kernel.Generation() {
		interrupt(d.b)
	}
	return d.b, d.err
}

// Send sends messages. The answers are there when it returns.
func (s *Socket) Send(b []byte) error {
	if s.closed {
		return unix.EBADF
	}
	var list []netlink.Message
	for len(b) > 0 {
		var m netlink.Message
		if err := m.UnmarshalBinary(b); err != nil || len(m.Data) < genmsg {
			return unix.EINVAL
		}
		list, b = append(list, m), b[m.Header.Length:]
	}
	k := s.kernel
	k.mu.Lock()
	defer k.mu.Unlock()
	faults := make([]Fault, len(list))
	lost := false
	for i, m := range list {
		if k.fail == nil || !isRequest(m) {
			continue
		}
		k.requests++
		faults[i] = k.fail(Request{k.requests, uint16(m.Header.Type & 0xff), m.Data[genmsg:]})
		lost = lost || faults[i] == LostAnswers
		if faults[i] == NoBuffers {
			return unix.ENOBUFS
		}
	}
	queued := len(s.queue)
	if len(list) > 0 && list[0].Header.Type == unix.NFNL_MSG_BATCH_BEGIN {
		s.batch(list, faults)
	} else {
		for i, m := range list {
			s.get(m, faults[i])
		}
	}
	if lost {
		s.queue = append(s.queue[:queued], datagram{err: unix.ENOBUFS})
	}
	return nil
}

func isRequest(m netlink.Message) bool { return m.Header.Type>>8 == unix.NFNL_SUBSYS_NFTABLES }

// batch carries out a batch on a copy, which takes the place of the tables if all goes well.
func (s *Socket) batch(list []netlink.Message, faults []Fault) {
	k := s.kernel
	begin := list[0]
	t := transaction{kernel: k, port: s.port, now: time.Now(), tables: k.tables.clone(), changed: map[tableKey]bool{}}
	failed, ended, queued := false, false, len(s.queue)
	for i, m := range list[1:] {
		if ended = m.Header.Type == unix.NFNL_MSG_BATCH_END; ended {
			break
		}
		err := faults[i+1].refusal()
		if err == 0 {
			err = t.request(m)
		}
		if err == unix.ENOMEM {
			s.queue = s.queue[:queued]
			s.answer(begin, err)
			return
		}
		if err != 0 {
			s.answer(m, err)
			failed = true
		}
	}
	if failed || !ended || len(t.changed) == 0 {
		return
	}
	k.tables = t.tables
	k.generation++
	for key := range t.changed {
		if at := k.tables[key]; at != nil {
			at.generation = k.generation
		}
	}
}

// refusal is the error of a message that is refused; 0: none is.
func (f Fault) refusal() unix.Errno {
	return map[Fault]unix.Errno{
		NoMemory: unix.ENOMEM, Busy: unix.EBUSY, Interrupted: unix.EINTR, Full: unix.ENFILE, Invalid: unix.EINVAL,
	}[f]
}

// answer says that a message failed.
func (s *Socket) answer(to netlink.Message, err unix.Errno) {
	b, _ := to.MarshalBinary()
	s.put(netlink.Error, 0, to, append(binary.NativeEndian.AppendUint32(nil, -uint32(err)), b...))
}

// put appends a datagram of one message.
func (s *Socket) put(msgType netlink.HeaderType, flags netlink.HeaderFlags, to netlink.Message, data []byte) {
	m := netlink.Message{Header: netlink.Header{
		Type: msgType, Flags: flags, Sequence: to.Header.Sequence, PID: s.port,
	}, Data: data}
	const align = unix.NLMSG_ALIGNTO
	m.Data = append(m.Data, make([]byte, (align-len(m.Data)%align)%align)...)
	m.Header.Length = uint32(unix.SizeofNlMsghdr + len(m.Data))
	b, err := m.MarshalBinary()
	if err != nil {
		panic(err) // a bug of ours
	}
	s.queue = append(s.queue, datagram{b, nil, flags&netlink.Multi != 0, s.kernel.generation})
}

// interrupt marks a message of a list.
func interrupt(b []byte) {
	const flags = 6 // offsetof(struct nlmsghdr, nlmsg_flags)
	binary.NativeEndian.PutUint16(b[flags:], binary.NativeEndian.Uint16(b[flags:])|unix.NLM_F_DUMP_INTR)
}

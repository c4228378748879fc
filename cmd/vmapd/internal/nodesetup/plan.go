package nodesetup

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Where the kernel has its settings. Those below /proc/sys/net belong to a network
// namespace; of the size of the table there is only one, which the initial namespace
// alone may change (Documentation/networking/nf_conntrack-sysctl.rst).
const (
	sysctls = "/proc/sys/net/netfilter/"

	fileMax                   = sysctls + "nf_conntrack_max"
	fileCount                 = sysctls + "nf_conntrack_count"
	fileBuckets               = sysctls + "nf_conntrack_buckets"
	fileTCPEstablishedTimeout = sysctls + "nf_conntrack_tcp_timeout_established"
	fileTCPCloseWaitTimeout   = sysctls + "nf_conntrack_tcp_timeout_close_wait"
	fileTCPBeLiberal          = sysctls + "nf_conntrack_tcp_be_liberal"
	fileUDPTimeout            = sysctls + "nf_conntrack_udp_timeout"
	fileUDPStreamTimeout      = sysctls + "nf_conntrack_udp_timeout_stream"

	fileHashSize = "/sys/module/nf_conntrack/parameters/hashsize"
)

// Conntrack is what the configuration says about connection tracking; the names are those
// of kube-proxy's section conntrack. The zero value leaves everything as it is.
type Conntrack struct {
	// MaxPerCore connections for each CPU are tracked, but Min at least. If MaxPerCore is
	// 0 or less, the limit is left alone, whatever Min says.
	MaxPerCore, Min int32
	// Timeouts after the last packet of a connection. They count in whole seconds: the rest
	// is cut off, but for less than one second, which becomes one. 0 or less leaves the
	// timeout alone.
	TCPEstablishedTimeout time.Duration
	TCPCloseWaitTimeout   time.Duration
	UDPTimeout            time.Duration // until there was a reply, and a packet after it
	UDPStreamTimeout      time.Duration
	// TCPBeLiberal makes the kernel not call packets outside of the window INVALID. false
	// leaves it as it is.
	TCPBeLiberal bool
}

// Facts is what Plan has to know of the node.
type Facts struct {
	CPUs int // online, whether or not this process may run on them
	// Values has what stands in the files now, without the line's end. A file that can't
	// be read is missing.
	Values map[string]string
}

// Write is one file and what it has to say.
type Write struct {
	File  string
	Value string
	Have  string // what it says now; empty: not known
	Why   string
}

// Plan returns what has to be written so that the node is as c says: nothing if it is
// already.
//
// The limit of connections becomes exactly what c says, also if it was higher. The size of
// the hash table only ever grows, to a quarter of that limit.
func Plan(c Conntrack, f Facts) []Write {
	p := planner{facts: f}
	if limit := c.limit(f.CPUs); limit > 0 {
		p.exactly(fileMax, limit, fmt.Sprintf("the greater of conntrack.maxPerCore %d for %d CPUs and conntrack.min %d", c.MaxPerCore, f.CPUs, c.Min))
		p.hashSize(limit/4, "a quarter of the connections, so that a lookup meets few others")
	}
	p.timeout(fileTCPEstablishedTimeout, c.TCPEstablishedTimeout, "conntrack.tcpEstablishedTimeout")
	p.timeout(fileTCPCloseWaitTimeout, c.TCPCloseWaitTimeout, "conntrack.tcpCloseWaitTimeout")
	p.timeout(fileUDPTimeout, c.UDPTimeout, "conntrack.udpTimeout")
	p.timeout(fileUDPStreamTimeout, c.UDPStreamTimeout, "conntrack.udpStreamTimeout")
	if c.TCPBeLiberal {
		p.exactly(fileTCPBeLiberal, 1, "conntrack.tcpBeLiberal")
	}
	return p.writes
}

// limit returns how many connections are tracked at most; 0 leaves that alone.
func (c Conntrack) limit(cpus int) int64 {
	if c.MaxPerCore <= 0 {
		return 0
	}
	limit := max(int64(c.MaxPerCore)*int64(cpus), int64(c.Min))
	return min(limit, math.MaxInt32) // the kernel's type
}

type planner struct {
	facts  Facts
	writes []Write
}

func (p *planner) exactly(file string, n int64, why string) {
	want := strconv.FormatInt(n, 10)
	if have := p.facts.Values[file]; have != want {
		p.writes = append(p.writes, Write{File: file, Value: want, Have: have, Why: why})
	}
}

// hashSize lets the hash table have n buckets at least. The kernel rounds up, and shows the
// result in a file that everybody may read, unlike the one it is written to.
func (p *planner) hashSize(n int64, why string) {
	have := p.facts.Values[fileBuckets]
	if now, err := strconv.ParseInt(have, 10, 64); err == nil && now >= n {
		return
	}
	p.writes = append(p.writes, Write{File: fileHashSize, Value: strconv.FormatInt(n, 10), Have: have, Why: why})
}

func (p *planner) timeout(file string, d time.Duration, why string) {
	if d > 0 {
		// 0 would mean not to track at all.
		p.exactly(file, max(int64(d/time.Second), 1), why)
	}
}

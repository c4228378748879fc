package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	moby "github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// serverTable accesses the kernel's virtual servers. It is for one goroutine: a handle of
// moby/ipvs hangs for good if two use it at once.
type serverTable struct{ *moby.Handle }

func openServers() (*serverTable, error) {
	h, err := moby.New("")
	if err != nil {
		return nil, fmt.Errorf("open a socket to IPVS: %w", err)
	}
	return &serverTable{h}, nil
}

// hashed is a flag that the kernel sets for itself (IP_VS_SVC_F_HASHED).
const hashed = 0x2

// addressFamilies are the kernel's numbers of the IP families.
var addressFamilies = [...]uint16{model.IPv4: unix.AF_INET, model.IPv6: unix.AF_INET6}

func service(k ipvs.Key, s ipvs.Server) *moby.Service {
	netmask := uint32(0xffffffff) // of persistence: the client's whole address
	if k.Addr.Is6() {
		netmask = 128
	}
	return &moby.Service{
		AddressFamily: addressFamilies[model.FamilyOf(k.Addr)], Netmask: netmask,
		Address: net.IP(k.Addr.AsSlice()), Protocol: uint16(k.Protocol), Port: k.Port,
		SchedName: s.Scheduler, Flags: uint32(s.Flags), Timeout: uint32(s.Timeout / time.Second),
	}
}

func destination(k ipvs.Key, a netip.AddrPort, weight int) *moby.Destination {
	return &moby.Destination{
		Address: net.IP(a.Addr().AsSlice()), Port: a.Port(), Weight: weight,
		AddressFamily: addressFamilies[model.FamilyOf(k.Addr)], ConnectionFlags: moby.ConnFwdMasq,
	}
}

// unlessGone returns nil for an object that is gone already.
func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func (t *serverTable) add(k ipvs.Key, s ipvs.Server) error {
	err := t.NewService(service(k, s))
	if errors.Is(err, unix.EEXIST) {
		err = t.UpdateService(service(k, s))
	}
	return explain(err, s)
}

func (t *serverTable) update(k ipvs.Key, s ipvs.Server) error {
	return explain(t.UpdateService(service(k, s)), s)
}

func explain(err error, s ipvs.Server) error {
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel has no scheduler %s: %w", s.Scheduler, err)
	}
	return err
}

func (t *serverTable) remove(k ipvs.Key) error {
	return unlessGone(t.DelService(service(k, ipvs.Server{})))
}

func (t *serverTable) setReal(k ipvs.Key, a netip.AddrPort, weight int) error {
	s, d := service(k, ipvs.Server{}), destination(k, a, weight)
	err := t.NewDestination(s, d)
	if errors.Is(err, unix.EEXIST) {
		err = t.UpdateDestination(s, d)
	}
	return err
}

func (t *serverTable) removeReal(k ipvs.Key, a netip.AddrPort) error {
	return unlessGone(t.DelDestination(service(k, ipvs.Server{}), destination(k, a, 0)))
}

// list returns all virtual servers of a family with their real servers, but not other programs' by packet marks. It
// costs a few requests, however many there are.
func (t *serverTable) list(f model.Family) (map[ipvs.Key]ipvs.Server, error) {
	services, err := t.GetServices()
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	reals, err := readReals(f)
	if err != nil {
		return nil, fmt.Errorf("list real servers: %w", err)
	}
	all := map[ipvs.Key]ipvs.Server{}
	for _, m := range services {
		if m.FWMark != 0 || m.AddressFamily != addressFamilies[f] {
			continue
		}
		a, _ := netip.AddrFromSlice(m.Address)
		k := ipvs.Key{Addr: a, Protocol: model.Protocol(m.Protocol), Port: m.Port}
		s := ipvs.Server{
			Scheduler: m.SchedName, Flags: ipvs.Flags(m.Flags &^ hashed), Real: map[netip.AddrPort]int{},
		}
		for a, real := range reals[k] {
			s.Real[a] = real.Weight
		}
		if s.Flags&ipvs.Persistent != 0 {
			s.Timeout = time.Duration(m.Timeout) * time.Second
		}
		all[k] = s
	}
	return all, nil
}

func readReals(f model.Family) (map[ipvs.Key]map[netip.AddrPort]ipvs.Real, error) {
	file, err := os.Open("/proc/thread-self/net/ip_vs")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ipvs.ParseReals(file, f)
}

func (t *serverTable) timeouts() (ipvs.Timeouts, error) {
	c, err := t.GetConfig()
	if err != nil {
		return ipvs.Timeouts{}, fmt.Errorf("read timeouts: %w", err)
	}
	return ipvs.Timeouts{TCP: c.TimeoutTCP, TCPFin: c.TimeoutTCPFin, UDP: c.TimeoutUDP}, nil
}

func (t *serverTable) setTimeouts(o ipvs.Timeouts) error {
	return t.SetConfig(&moby.Config{TimeoutTCP: o.TCP, TimeoutTCPFin: o.TCPFin, TimeoutUDP: o.UDP})
}

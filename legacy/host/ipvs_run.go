package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// run carries out a plan.
type run struct {
	*IPVS
	f      *serverFamily
	have   *ipvs.KernelState // read before; nil if it was known
	want   *ipvs.State
	failed map[ipvs.Key]bool // virtual servers that could not be added
	done   int               // operations that wrote something

	restoreFailures int // runs of iptables-restore for the rules that failed
}

// count adds the operations and failures of a run.
func (r *run) count(s *Stats) {
	if r.done > 0 {
		s.Batches++
	}
	s.Operations += uint64(r.done)
	s.RestoreFailures += uint64(r.restoreFailures)
}

// carryOut carries out one operation after the other. It continues after a failure of one virtual server, address or
// sysctl, and stops after one of ipsets, rules or the device, without which the rest of the plan would not be safe. If
// a few service ports alone are concerned, the error is a [model.RefusedError].
func (r *run) carryOut(ctx context.Context, ops []ipvs.Op) error {
	var errs []error
	refused := map[model.ServicePortName]bool{}
	whole := false
	for len(ops) > 0 {
		if text, n, wrote := r.setText(ops); n > 0 {
			if err := restoreSets(ctx, text); err != nil {
				return errors.Join(append(errs, err)...)
			}
			r.done += wrote
			ops = ops[n:]
			continue
		}
		op := ops[0]
		ops = ops[1:]
		if r.skips(op) {
			continue
		}
		r.done++
		err := r.one(ctx, op)
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("%v: %w", op, err))
		switch op.(type) {
		case ipvs.CreateDevice, ipvs.SetRules:
			return errors.Join(errs...)
		}
		port, ok := r.portOf(op)
		refused[port], whole = true, whole || !ok
	}
	err := errors.Join(errs...)
	if err == nil || whole || len(refused) > maxRefused {
		return err
	}
	return &model.RefusedError{Family: r.f.family, Ports: refused, Err: err}
}

// maxRefused bounds the service ports with failures of their own: with more, something else is wrong.
const maxRefused = 10

// portOf returns the service port that an operation is for, if it is on a virtual server of one.
func (r *run) portOf(op ipvs.Op) (model.ServicePortName, bool) {
	var k ipvs.Key
	switch op := op.(type) {
	case ipvs.AddServer:
		k = op.Key
	case ipvs.UpdateServer:
		k = op.Key
	case ipvs.AddReal:
		k = op.Key
	case ipvs.DrainReal:
		k = op.Key
	case ipvs.DeleteReal:
		k = op.Key
	default:
		return model.ServicePortName{}, false
	}
	return r.want.Owner(k)
}

// setText returns the operations on ipsets at the beginning of ops as text for ipset restore,
// their number, and how many of them are in the text.
func (r *run) setText(ops []ipvs.Op) (text string, n, wrote int) {
	var b strings.Builder
	for _, op := range ops {
		line, ok := ipvs.Line(op, "ipset")
		if !ok {
			break
		}
		n++
		if e, adds := op.(ipvs.AddEntry); adds && r.leadsNowhere(e) {
			continue
		}
		wrote++
		b.WriteString(line + "\n")
	}
	return b.String(), n, wrote
}

// leadsNowhere reports whether an entry would let connections through to a virtual server
// that could not be added: the node itself would answer.
func (r *run) leadsNowhere(op ipvs.AddEntry) bool {
	e := op.Entry
	return op.Set == ipvs.Services && r.failed[ipvs.Key{Addr: e.Addr, Protocol: e.Protocol, Port: e.Port}]
}

// skips reports whether there is nothing to do for an operation, or nothing that could work.
func (r *run) skips(op ipvs.Op) bool {
	switch op := op.(type) {
	case ipvs.SetSysctl:
		return !meant(op.Sysctl)
	case ipvs.AddReal:
		return r.failed[op.Key]
	case ipvs.DrainReal:
		// The zero time is long ago: without connections, the real server goes at once.
		r.f.draining[drain{op.Key, op.Addr}] = time.Time{}
		return r.have != nil && drainsAlready(r.have, op)
	}
	return false
}

// one carries out one operation, unless it is one on ipsets.
func (r *run) one(ctx context.Context, op ipvs.Op) error {
	switch op := op.(type) {
	case ipvs.SetSysctl:
		r.logSetting(op, op.Why)
		return os.WriteFile(sysctlPath(op.Name), []byte(op.Value), 0)
	case ipvs.SetTimeouts:
		r.logSetting(op, "the configured timeouts of IPVS")
		return r.servers.setTimeouts(op.Timeouts)
	case ipvs.CreateDevice:
		return createDevice(op.Name)
	case ipvs.SetRules:
		err := r.f.setRules(ctx, op.Rules)
		if err != nil {
			r.restoreFailures++
		}
		return err
	case ipvs.AddAddress:
		return changeAddress(op.Device, op.Addr, netlink.AddrAdd)
	case ipvs.DeleteAddress:
		return changeAddress(op.Device, op.Addr, netlink.AddrDel)
	}
	return r.server(op)
}

// logSetting logs what concerns the whole network namespace, also the virtual servers of other programs.
func (r *run) logSetting(op fmt.Stringer, why string) {
	r.log.Info("changing node setting", slog.String("setting", op.String()), slog.String("reason", why))
}

// setRules replaces our rules and jumps by these.
func (f *serverFamily) setRules(ctx context.Context, c *ipvs.Rules) error {
	saved, err := save(ctx, f.name)
	if err != nil {
		return err
	}
	_, err = f.restore(ctx, text(c.Over(saved)))
	return err
}

// server carries out an operation on virtual and real servers.
func (r *run) server(op ipvs.Op) error {
	switch op := op.(type) {
	case ipvs.AddServer:
		err := r.servers.add(op.Key, op.Server)
		r.failed[op.Key] = err != nil
		return err
	case ipvs.UpdateServer:
		return r.servers.update(op.Key, op.Server)
	case ipvs.DeleteServer:
		maps.DeleteFunc(r.f.draining, func(d drain, _ time.Time) bool { return d.key == op.Key })
		return r.servers.remove(op.Key)
	case ipvs.AddReal:
		delete(r.f.draining, drain{op.Key, op.Addr})
		return r.servers.addReal(op.Key, op.Addr, op.Weight)
	case ipvs.DrainReal:
		return r.servers.drainReal(op.Key, op.Addr)
	case ipvs.DeleteReal:
		delete(r.f.draining, drain{op.Key, op.Addr})
		return r.servers.removeReal(op.Key, op.Addr)
	}
	return fmt.Errorf("unknown operation %T", op)
}

// drainInterval is the time between two looks at a real server that drains.
const drainInterval = time.Minute

// endDrained deletes real servers that have drained, and have no connection left.
func (b *IPVS) endDrained(f *serverFamily) (deleted int, err error) {
	now := b.now()
	due := map[ipvs.Key][]netip.AddrPort{}
	for d, next := range f.draining {
		if !now.Before(next) {
			due[d.key] = append(due[d.key], d.addr)
		}
	}
	var errs []error
	for k, addrs := range due {
		list, err := b.servers.reals(k)
		if err != nil {
			errs = append(errs, fmt.Errorf("list real servers of %v: %w", k, err))
			continue
		}
		for _, a := range addrs {
			d := drain{k, a}
			i := slices.IndexFunc(list, func(r realServer) bool { return r.addr == a })
			switch {
			case i < 0 || list[i].weight != 0: // somebody else has changed it
				delete(f.draining, d)
			case list[i].connections > 0:
				f.draining[d] = now.Add(drainInterval)
			default:
				if err := b.servers.removeReal(k, a); err != nil {
					errs = append(errs, fmt.Errorf("delete real server %v of %v, which has drained: %w", a, k, err))
					continue
				}
				delete(f.draining, d)
				deleted++
			}
		}
	}
	return deleted, errors.Join(errs...)
}

// createDevice creates the dummy device. It stays down: its addresses are local all the same, and
// no packet is ever sent by it.
func createDevice(name string) error {
	a := netlink.NewLinkAttrs()
	a.Name = name
	if err := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: a}); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetARPOff(link)
}

// RemoveDevice removes a device with its addresses. It is no error if there is none.
func RemoveDevice(name string) error {
	link, err := findDevice(name)
	if link == nil || err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("remove the device %s: %w", name, err)
	}
	return nil
}

// findDevice returns nil if the device does not exist.
func findDevice(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	var none netlink.LinkNotFoundError
	switch {
	case errors.As(err, &none):
		return nil, nil //nolint:nilnil // a missing device is no error
	case err != nil:
		return nil, fmt.Errorf("look for the device %s: %w", name, err)
	}
	return link, nil
}

// changeAddress adds or deletes an address. It is no error if somebody has done so before.
func changeAddress(device string, a netip.Addr, change func(netlink.Link, *netlink.Addr) error) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if a.Is6() {
		addr.Flags = unix.IFA_F_NODAD // every node has the same address
	}
	if err := change(link, addr); err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	return nil
}

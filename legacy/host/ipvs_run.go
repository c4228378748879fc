package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/vmapd/vmapd/legacy/device"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// run carries out a plan. It is the [ipvs.Kernel] of its operations.
type run struct {
	*IPVS
	ctx    context.Context
	f      *serverFamily
	want   *ipvs.State
	failed map[ipvs.Key]bool // virtual servers that could not be added
	done   int               // operations
}

// carryOut carries out one operation after the other. It continues after a failure of one virtual server, address or
// sysctl, and stops after one without which the rest would not be safe. If service ports alone are concerned, the
// error is a [model.FamilyError] with these.
func (r *run) carryOut(plan ipvs.Plan) error {
	var errs []error
	refused := map[model.ServicePortName]bool{}
	whole := false
	for _, op := range plan {
		r.done++
		err := op.Do(r)
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %w", op.Command, err))
		if op.Needed {
			return errors.Join(errs...)
		}
		port, ok := r.want.Owner(op.Key)
		refused[port], whole = true, whole || !ok
	}
	err := errors.Join(errs...)
	if err == nil || whole {
		return err
	}
	return &model.FamilyError{Family: r.f.family, Ports: refused, Err: err}
}

func (r *run) SetSysctl(s ipvs.Sysctl) error {
	r.logSetting(s.Name+"="+s.Value, s.Why)
	return os.WriteFile(sysctlPath(s.Name), []byte(s.Value), 0)
}

func (r *run) SetTimeouts(t ipvs.Timeouts) error {
	r.logSetting("timeouts of IPVS", "they are configured")
	return r.servers.setTimeouts(t)
}

// logSetting logs what concerns the whole network namespace, also the virtual servers of other programs.
func (r *run) logSetting(setting, why string) {
	r.log.Info("changing node setting", slog.String("setting", setting), slog.String("reason", why))
}

// CreateDevice leaves the device down: its addresses are local all the same.
func (r *run) CreateDevice() error {
	_, err := device.Create(ipvs.Device)
	return err
}

func (r *run) AddAddress(a netip.Addr) error { return changeAddress(a, device.Add) }

func (r *run) DeleteAddress(a netip.Addr) error { return changeAddress(a, device.Delete) }

func changeAddress(a netip.Addr, change func(netlink.Link, netip.Addr) error) error {
	link, err := netlink.LinkByName(ipvs.Device)
	if err != nil {
		return err
	}
	return change(link, a)
}

func (r *run) SetRules(rules *ipvs.Rules) error {
	saved, err := r.f.save(r.ctx)
	if err != nil {
		return err
	}
	return r.write(r.ctx, r.f.programs, rules.Over(saved), false)
}

func (r *run) CreateSet(name ipvs.SetName) error { return createSet(r.sets, r.f.family, name) }

// AddEntry implements [ipvs.Kernel], but for an entry that would let connections through to a virtual server that could
// not be added: the node itself would answer.
func (r *run) AddEntry(name ipvs.SetName, e ipvs.Entry) error {
	if name == ipvs.Services && r.failed[ipvs.Key{Addr: e.Addr, Protocol: e.Protocol, Port: e.Port}] {
		return nil
	}
	return r.sets.IpsetAdd(name.In(r.f.family), setEntry(e))
}

func (r *run) DeleteEntry(name ipvs.SetName, e ipvs.Entry) error {
	return r.sets.IpsetDel(name.In(r.f.family), setEntry(e))
}

func (r *run) AddServer(k ipvs.Key, s ipvs.Server) error {
	err := r.servers.add(k, s)
	r.failed[k] = err != nil
	return err
}

func (r *run) UpdateServer(k ipvs.Key, s ipvs.Server) error { return r.servers.update(k, s) }

func (r *run) DeleteServer(k ipvs.Key) error { return r.servers.remove(k) }

func (r *run) SetReal(k ipvs.Key, a netip.AddrPort, weight int) error {
	if r.failed[k] {
		return nil // the error of the virtual server says it all
	}
	if weight == 0 {
		r.f.draining, r.f.look = true, time.Time{} // without connections, the real server goes at once
	}
	return r.servers.setReal(k, a, weight)
}

func (r *run) DeleteReal(k ipvs.Key, a netip.AddrPort) error { return r.servers.removeReal(k, a) }

// drainInterval is the time between two looks at real servers that drain.
const drainInterval = time.Minute

// endDrained deletes real servers that have weight 0 and no connection left. The kernel says which these are.
func (b *IPVS) endDrained(f *serverFamily) (deleted int, err error) {
	now := time.Now()
	if !f.draining || now.Before(f.look) {
		return 0, nil
	}
	servers, err := readReals(f.family)
	if err != nil {
		return 0, fmt.Errorf("list real servers that drain: %w", err)
	}
	f.draining, f.look = false, now.Add(drainInterval)
	var errs []error
	for k, reals := range servers {
		_, ours := f.have.Owner(k)
		for a, real := range reals {
			switch {
			case !ours || real.Weight != 0:
			case !real.Idle:
				f.draining = true
			default:
				if err := b.servers.removeReal(k, a); err != nil {
					errs = append(errs, fmt.Errorf("delete real server %v of %v, which has drained: %w", a, k, err))
					continue
				}
				deleted++
			}
		}
	}
	return deleted, errors.Join(errs...)
}

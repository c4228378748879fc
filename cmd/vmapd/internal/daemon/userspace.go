package daemon

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/events"
)

// openUserspace opens the backend that needs nothing of the kernel but sockets. Without CAP_NET_ADMIN it
// serves the addresses that the node has.
func (d *base) openUserspace(why string) (*dataplane, error) {
	o, with := userspace.Options{Log: d.log, Failed: d.listenerFailed}, ""
	device, err := userspace.OpenInterface()
	switch {
	case err == nil:
		o.Device, with = device, "addresses on "+userspace.DeviceName
	case errors.Is(err, unix.EPERM):
		d.log.Warn("without CAP_NET_ADMIN: only addresses that this host has are served")
	default:
		d.log.Warn("no interface for the addresses of Services: only those that this host has are served",
			slog.Any("err", err))
	}
	f := userspace.New(o)
	sweep, signs := d.sweeps(func(f *leftovers.Finder) { f.RunsUserspace = true })
	return &dataplane{
		Backend: f, userspace: f, name: string(config.Userspace), with: with, why: why,
		close: func() error { return nil }, sweep: sweep, signs: signs,
	}, nil
}

// listenerFailed tells a Service of a port that can't be served in full.
func (d *base) listenerFailed(service model.NamespacedName, err error) {
	d.events.Service(service, events.Warning, events.ReasonNodePortFailed, err.Error())
}

// listenerCounts returns the new connections to service ports.
func (p *dataplane) listenerCounts() (list []kernel.Count) {
	for _, n := range p.userspace.Counts() {
		count := kernel.Count{Name: n.Name, Family: n.Family, Connections: n.Forwarded + n.Refused, Refused: n.Refused}
		list = append(list, count)
	}
	return list
}

// listenerNotes says what the backend in user space does not serve.
func (p *dataplane) listenerNotes() (notes []string) {
	if p.userspace == nil {
		return nil
	}
	for f, s := range p.userspace.Stats() {
		family := model.Family(f)
		if s.Absent > 0 {
			notes = append(notes, fmt.Sprintf(
				"%v: %d listeners are missing, because this host does not have their addresses", family, s.Absent))
		}
		if n := s.Missing - s.Absent; n > 0 {
			notes = append(notes, fmt.Sprintf("%v: %d listeners can't be opened; the log has the reasons", family, n))
		}
	}
	return notes
}

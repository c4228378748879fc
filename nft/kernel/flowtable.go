package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// addFlowtable makes a flowtable. If it is there, the devices are added to it.
func (m *messages) addFlowtable(name string, devices ...string) {
	at := m.flowtable(unix.NFT_MSG_NEWFLOWTABLE, unix.NLM_F_CREATE, name, devices)
	// Linux 5.7. An update without it would end the counting.
	m.uint32(nftables.NFTA_FLOWTABLE_FLAGS, uint32(nftables.FlowtableFlagsCounter))
	m.end(at)
}

func (m *messages) flowtable(msgType, flags uint16, name string, devices []string) (at int) {
	at = m.object(msgType, flags)
	m.string(nftables.NFTA_FLOWTABLE_NAME, name)
	hook := m.nest(nftables.NFTA_FLOWTABLE_HOOK | unix.NLA_F_NESTED)
	m.uint32(nftables.NFTA_FLOWTABLE_HOOK_NUM, unix.NF_NETDEV_INGRESS)
	m.uint32(nftables.NFTA_FLOWTABLE_PRIORITY, uint32(nft.PriorityFilter))
	if len(devices) > 0 {
		list := m.nest(nftables.NFTA_FLOWTABLE_DEVS | unix.NLA_F_NESTED)
		for _, d := range devices {
			m.string(nftables.NFTA_DEVICE_NAME, d)
		}
		m.close(list)
	}
	m.close(hook)
	return at
}

func (c *conn) readFlowtables(t *nft.Table) error {
	err := c.list(unix.NFT_MSG_GETFLOWTABLE, t.Family, "", func(b []byte) error {
		f := nft.Flowtable{Name: nfnl.String(b, nftables.NFTA_FLOWTABLE_NAME)}
		hook := nfnl.First(b, nftables.NFTA_FLOWTABLE_HOOK)
		for name := range nfnl.Attributes(nfnl.First(hook, nftables.NFTA_FLOWTABLE_DEVS), nftables.NFTA_DEVICE_NAME) {
			f.Devices = append(f.Devices, string(nfnl.Text(name)))
		}
		t.Flowtables = append(t.Flowtables, f)
		return nil
	})
	if nfnl.IsMissing(err) || errors.Is(err, unix.ENOENT) {
		return nil // a kernel without flowtables has none
	}
	return err
}

func (c *conn) readDevices(f model.Family) (devices []string, err error) {
	t := nft.Table{Family: f}
	err = c.readFlowtables(&t)
	for _, f := range t.Flowtables {
		if f.Name == nft.FastPath {
			devices = f.Devices
		}
	}
	slices.Sort(devices)
	return devices, err
}

// FastPath is the state of a family's fast path.
type FastPath struct {
	Family model.Family
	// Lacks is what the kernel lacks, an [*UnsupportedError]; nil: nothing.
	Lacks error
	// Devices are those of the flowtable, sorted; nil before the first Apply with devices.
	Devices []string
	// Refused is the error of devices that the kernel did not take, at the last try.
	Refused error
}

// FastPaths returns the state of the fast path of each family; none if it is not wanted. It may be called at any
// time, and does not wait for Apply.
func (b *Backend) FastPaths() (list []FastPath) {
	if !b.wants.FastPath {
		return nil
	}
	for _, st := range b.families {
		p := st.read().fastPath
		p.Family, p.Lacks = st.family, st.lacks[fastPathNeeds]
		list = append(list, p)
	}
	return list
}

// SetDevices sets the devices of the fast path, from the next Apply on. It may be called at
// any time. A device that was removed and made again under its name needs another call.
func (b *Backend) SetDevices(names []string) { b.devices.Store(&names) }

// applyDevices makes the devices of a family's flowtable those that SetDevices set, one after another: the kernel may
// refuse some. A failure is logged: the packets of these devices take the usual path, until another call of SetDevices.
func (b *Backend) applyDevices(st *familyState) {
	want := b.devices.Load()
	if want == nil || want == st.devices {
		return
	}
	have, err := b.conn.readDevices(st.family)
	if err == nil {
		for _, d := range without(have, *want) {
			err = cmp.Or(b.conn.changeDevice(st.family, unix.NFT_MSG_DELFLOWTABLE, d), err)
		}
		for _, d := range without(*want, have) {
			err = cmp.Or(b.conn.changeDevice(st.family, unix.NFT_MSG_NEWFLOWTABLE, d), err)
		}
		if now, readErr := b.conn.readDevices(st.family); readErr == nil {
			have = now
		}
	}
	st.update(func(to *shared) { to.fastPath.Devices, to.fastPath.Refused = have, err })
	if st.devices = want; err != nil {
		b.wants.Log.Warn("packets of some devices do not take the fast path",
			slog.String("family", st.family.String()), slog.Any("err", err))
	}
}

// changeDevice adds a device to the flowtable, or removes it (Linux 5.8).
func (c *conn) changeDevice(f model.Family, msgType uint16, device string) error {
	m, verb := c.newBatch(f, nft.TableName), "add"
	if msgType == unix.NFT_MSG_NEWFLOWTABLE {
		m.addFlowtable(nft.FastPath, device)
	} else {
		verb = "remove"
		m.end(m.flowtable(msgType, 0, nft.FastPath, []string{device}))
	}
	err := c.commit(&m)
	if err == nil || errors.Is(err, unix.ENOENT) { // it has just gone
		return nil
	}
	return fmt.Errorf("%s device %s: %w", verb, device, err)
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

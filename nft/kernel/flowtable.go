package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// Attributes and flags of flowtables (linux/netfilter/nf_tables.h: enum nft_flowtable_attributes and so on).
const (
	flowtableName    = 0x2 // NFTA_FLOWTABLE_NAME
	flowtableHook    = 0x3 // NFTA_FLOWTABLE_HOOK
	flowtableFlags   = 0x7 // NFTA_FLOWTABLE_FLAGS
	flowtableHookNum = 0x1 // NFTA_FLOWTABLE_HOOK_NUM
	flowtablePrio    = 0x2 // NFTA_FLOWTABLE_HOOK_PRIORITY
	flowtableDevices = 0x3 // NFTA_FLOWTABLE_HOOK_DEVS
	deviceName       = 0x1 // NFTA_DEVICE_NAME
	hookIngress      = 0   // NF_NETDEV_INGRESS
	flowtableCounter = 0x2 // NFT_FLOWTABLE_COUNTER, Linux 5.7
)

// mostDevices is the largest number of devices in one message (NFT_NETDEVICE_MAX).
const mostDevices = 256

// addFlowtable makes a flowtable. If it is there, the devices are added to it.
func (m *messages) addFlowtable(t nft.Flowtable, devices []string) {
	at := m.flowtable(unix.NFT_MSG_NEWFLOWTABLE, unix.NLM_F_CREATE, t, devices)
	m.uint32(flowtableFlags, flowtableCounter) // an update without it would end the counting
	m.end(at)
}

// removeDevices takes devices out of a flowtable (Linux 5.8).
func (m *messages) removeDevices(t nft.Flowtable, devices []string) {
	m.end(m.flowtable(unix.NFT_MSG_DELFLOWTABLE, 0, t, devices))
}

func (m *messages) flowtable(msgType, flags uint16, t nft.Flowtable, devices []string) (at int) {
	at = m.object(msgType, flags)
	m.string(flowtableName, t.Name)
	hook := m.nest(flowtableHook | unix.NLA_F_NESTED)
	m.uint32(flowtableHookNum, hookIngress)
	m.uint32(flowtablePrio, uint32(t.Prio))
	if len(devices) > 0 {
		list := m.nest(flowtableDevices | unix.NLA_F_NESTED)
		for _, d := range devices {
			m.string(deviceName, d)
		}
		m.close(list)
	}
	m.close(hook)
	return at
}

// readFlowtables reads the names of the flowtables.
func (c *conn) readFlowtables(t *nft.Table) error {
	return c.listFlowtables(t.Family, func(name string, _ []byte) {
		t.Flowtables = append(t.Flowtables, nft.Flowtable{Name: name})
	})
}

func (c *conn) listFlowtables(f model.Family, each func(name string, hook []byte)) error {
	err := c.list(unix.NFT_MSG_GETFLOWTABLE, f, "", func(b []byte) error {
		each(string(nfnl.Text(nfnl.First(b, flowtableName))), nfnl.First(b, flowtableHook))
		return nil
	})
	if nfnl.IsMissing(err) || errors.Is(err, unix.ENOENT) {
		return nil // a kernel without flowtables has none
	}
	return err
}

// readDevices reads the devices of a flowtable.
func (c *conn) readDevices(f model.Family, flowtable string) (devices []string, err error) {
	err = c.listFlowtables(f, func(name string, hook []byte) {
		if name != flowtable {
			return
		}
		for name := range nfnl.Attributes(nfnl.First(hook, flowtableDevices), deviceName) {
			devices = append(devices, string(nfnl.Text(name)))
		}
	})
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
		p.Family, p.Lacks = st.family, st.slow
		list = append(list, p)
	}
	return list
}

// SetDevices sets the devices of the fast path, from the next Apply on. It may be called at
// any time. A device that was removed and made again under its name needs another call.
func (b *Backend) SetDevices(names []string) { b.devices.Store(&names) }

// applyDevices makes the devices of a family's flowtable those that SetDevices set. A failure is logged: the packets of
// these devices take the usual path, until another call of SetDevices.
func (b *Backend) applyDevices(st *familyState, t nft.Flowtable) {
	want := b.devices.Load()
	if want == nil || want == st.devices {
		return
	}
	have, err := b.conn.readDevices(st.family, t.Name)
	if err == nil {
		err = b.conn.changeDevices(st.family, t, have, *want)
		if now, readErr := b.conn.readDevices(st.family, t.Name); readErr == nil {
			have = now
		}
	}
	st.update(func(to *shared) { to.fastPath.Devices, to.fastPath.Refused = have, err })
	if st.devices = want; err != nil {
		b.wants.Log.Warn("packets of some devices do not take the fast path",
			slog.String("family", st.family.String()), slog.Any("err", err))
	}
}

// changeDevices adds and removes devices of a flowtable. Of several that are refused, the last is the error.
func (c *conn) changeDevices(f model.Family, t nft.Flowtable, have, want []string) error {
	var refused error
	for _, change := range []struct {
		devices []string
		message func(*messages, nft.Flowtable, []string)
		verb    string
	}{
		{without(have, want), (*messages).removeDevices, "remove"},
		// Those that are there are ignored, and one with a name that was another's gets the hook.
		{want, (*messages).addFlowtable, "add"},
	} {
		send := func(devices []string) error {
			m := c.newBatch(f, nft.TableName)
			change.message(&m, t, devices)
			return c.commit(&m)
		}
		for some := range slices.Chunk(change.devices, mostDevices) {
			if err := send(some); err == nil {
				continue
			} else if !isReply(err) {
				return err
			}
			for _, one := range some { // to find those that the kernel refuses
				if err := send([]string{one}); err != nil && !errors.Is(err, unix.ENOENT) { // it has just gone
					refused = fmt.Errorf("%s device %s: %w", change.verb, one, err)
				}
			}
		}
	}
	return refused
}

// without returns the elements of a that b lacks.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

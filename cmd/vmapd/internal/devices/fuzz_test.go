package devices

import (
	"encoding/binary"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/sync/rtnetlink"
)

// FuzzLink reads devices with attributes that are cut off, too long or unknown.
func FuzzLink(f *testing.F) {
	attr := func(kind uint16, data string) string {
		b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(data)))
		return string(binary.NativeEndian.AppendUint16(b, kind)) + data + "\x00\x00\x00"[:(4-len(data)%4)%4]
	}
	head := string(make([]byte, unix.SizeofIfInfomsg))
	for _, data := range []string{"", "\x01", "eth0\x00", "a name that is too long for a device\x00", string(make([]byte, 200))} {
		for kind := range uint16(64) {
			f.Add(head + attr(unix.IFLA_IFNAME, "eth0\x00") + attr(kind, data))
		}
		for _, kind := range []string{"veth", "bond", "vlan", "vxlan", "bridge", "of a later kernel"} {
			f.Add(head + attr(unix.IFLA_LINKINFO, attr(unix.IFLA_INFO_KIND, kind+"\x00")+attr(unix.IFLA_INFO_DATA, attr(1, data))))
		}
	}
	f.Add(head + "\x05\x00\x03\x00x")
	f.Fuzz(func(_ *testing.T, text string) {
		_ = rtnetlink.Recover(func() error {
			l, err := netlink.LinkDeserialize(nil, []byte(text))
			if err == nil {
				Choice{Auto: true}.of([]netlink.Link{l})
			}
			return err
		})
	})
}

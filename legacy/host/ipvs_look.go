package host

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// RealServers returns the addresses of the real servers that a virtual server sends new connections to,
// as the kernel has them now; nil: there is no such virtual server. It uses a socket of its own, and may be
// called during Apply.
func (b *IPVS) RealServers(v model.VIP) ([]netip.AddrPort, error) {
	t, err := openServers()
	if err != nil {
		return nil, err
	}
	defer t.Close()
	list, err := t.reals(ipvs.Key{Addr: v.Addr, Protocol: v.Protocol, Port: v.Port})
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list real servers of %v: %w", v, err)
	}
	out := []netip.AddrPort{}
	for _, r := range list {
		if r.weight > 0 { // 0: it drains
			out = append(out, r.addr)
		}
	}
	return out, nil
}

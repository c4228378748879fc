package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Remembered returns the endpoint that the kernel remembers for a client of a service port with session
// affinity, among the endpoints of a list, and how much longer; false if it remembers none. It lists all
// clients, over a connection of its own.
func (b *Backend) Remembered(port model.ServicePortName, list model.TrafficPolicy, who netip.Addr) (to netip.AddrPort, left time.Duration, ok bool, err error) {
	c, err := b.dialer.dial()
	if err != nil {
		return to, 0, false, err
	}
	defer func() { _ = c.close() }()
	key, name := string(nft.AppendAddr(nil, who)), nft.AffinityMap(port, list)
	err = c.readClients(model.FamilyOf(who), name, func(some []client) error {
		for _, e := range some {
			if e.Key == key {
				to, ok = nft.Endpoint(e.Data)
				left = e.left
			}
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		return to, 0, false, nil
	}
	if err != nil {
		err = fmt.Errorf("read elements of %s: %w", name, err)
	}
	return to, left, ok, err
}

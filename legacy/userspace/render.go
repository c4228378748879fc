package userspace

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Write writes the addresses that the device gets in a family, and the listeners, as text: a line for each.
func Write(w io.Writer, s *model.FamilySnapshot) error {
	b := bufio.NewWriter(w)
	for _, a := range slices.SortedFunc(maps.Keys(wantOf(s).addrs), netip.Addr.Compare) {
		fmt.Fprintf(b, "address %s dev %s\n", a, DeviceName)
	}
	for sp := range s.ServicePorts() {
		for _, at := range places(s, sp, Everything) {
			fmt.Fprintf(b, "listen %v for %v, %v\n", at.VIP, sp.Name, at.Frontend.Action)
		}
	}
	return b.Flush()
}

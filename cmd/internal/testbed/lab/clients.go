package lab

import "net/netip"

// AddClientAddr gives the client one more address, for AskFrom: one client can be many.
func (w *World) AddClientAddr(a netip.Addr) error {
	if err := w.Client.AddAddr("eth0", netip.PrefixFrom(a, a.BitLen())); err != nil {
		return err
	}
	mac, err := w.Client.mac("eth0")
	if err != nil {
		return err
	}
	return w.Node.AddNeighbor(UplinkName, a, mac)
}

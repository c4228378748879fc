package main

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/preflight"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
)

// noteMode notes the mode of the kube-proxy that runs on this node, which may not be that of its configuration. In mode
// ipvs, its rules are not compared, and those of another mode are what that has left.
func noteMode(ctx context.Context, in *preflight.Input) error {
	mode, none := proxyMode(ctx, metricsAddress), [len(model.Families)]*preflight.Rules{}
	if mode == "" && (in.Mode == string(config.IPVS) || in.Before == none) {
		found, err := hasKubeProxyDevice()
		if err != nil {
			return err
		}
		if found {
			mode = string(config.IPVS)
			in.Settings = append(in.Settings, "mode: ipvs, by the device "+host.KubeProxyDevice+" of this node: no kube-proxy answers at "+metricsAddress)
		}
	}
	if mode == "" {
		return nil
	}
	if in.Mode != "" && in.Mode != mode {
		in.Settings = append(in.Settings, fmt.Sprintf("mode: %s in kube-proxy's configuration, but the one of this node runs with %s", in.Mode, mode))
	}
	in.Mode = mode
	if mode != string(config.IPVS) {
		return nil
	}
	for _, f := range model.Families {
		if before := in.Before[f]; before != nil {
			in.Settings = append(in.Settings, fmt.Sprintf("mode: the %v rules of mode %s on this node are leftovers, for kube-proxy runs with ipvs: they are not compared", f, before.Mode))
			in.Before[f] = nil
		}
	}
	return nil
}

// hasKubeProxyDevice reports whether this node has the device of mode ipvs.
func hasKubeProxyDevice() (bool, error) {
	links, err := net.Interfaces()
	if err != nil {
		return false, fmt.Errorf("list the interfaces of this node: %w", err)
	}
	return slices.ContainsFunc(links, func(l net.Interface) bool { return l.Name == host.KubeProxyDevice }), nil
}

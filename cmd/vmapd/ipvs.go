package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/legacy/ipvs"
)

// ipvsFlags are those of the ipvs backend, as kube-proxy has them.
type ipvsFlags struct {
	scheduler    string
	strictARP    bool
	excludeCIDRs []string
	timeouts     ipvs.Timeouts
}

func (i *ipvsFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&i.scheduler, "ipvs-scheduler", ipvs.DefaultScheduler, "how IPVS chooses endpoints where neither a Service nor --lb-algorithm says")
	f.BoolVar(&i.strictARP, "ipvs-strict-arp", false, "do not answer ARP requests for Services' addresses")
	f.StringSliceVar(&i.excludeCIDRs, excludeCIDRsFlag, nil, "where virtual servers of others are, which are left alone")
	f.DurationVar(&i.timeouts.TCP, "ipvs-tcp-timeout", 0, "for idle TCP connections; 0 leaves the kernel's")
	f.DurationVar(&i.timeouts.TCPFin, "ipvs-tcpfin-timeout", 0, "for TCP connections after a FIN; 0 leaves the kernel's")
	f.DurationVar(&i.timeouts.UDP, "ipvs-udp-timeout", 0, "for UDP; 0 leaves the kernel's")
}

// ipvsOptions checks the flags.
func (t *trafficFlags) ipvsOptions() (ipvs.Options, error) {
	o := ipvs.Options{
		Scheduler: t.ipvs.scheduler, StrictARP: t.ipvs.strictARP, Timeouts: t.ipvs.timeouts,
		MasqueradeMark: 1 << t.masqueradeBit,
	}
	var err error
	if o.ExcludeCIDRs, err = parseExcludeCIDRs(t.ipvs.excludeCIDRs); err != nil {
		return o, err
	}
	if t.backend != ipvsBackend {
		return o, nil // what another backend does not need may be anything
	}
	if err := o.Check(); err != nil {
		return o, fmt.Errorf("--backend=ipvs: %w", err)
	}
	return o, nil
}

const excludeCIDRsFlag = "ipvs-exclude-cidrs"

func parseExcludeCIDRs(list []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("--%s: %q is not a CIDR", excludeCIDRsFlag, s)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

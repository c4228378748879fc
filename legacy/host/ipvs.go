package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/vmapd/vmapd/legacy/device"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// UnsupportedError names the feature of the node without which there is no IPVS backend.
type UnsupportedError struct {
	Feature string
	Err     error
}

func (e *UnsupportedError) Error() string { return fmt.Sprintf("no %s: %v", e.Feature, e.Err) }

// Unwrap returns the error of the attempt to use it.
func (e *UnsupportedError) Unwrap() error { return e.Err }

// IPVS is the IPVS backend. Of its methods, those that say so may be called during Apply. Its programs run
// in the network namespace of Apply's caller.
type IPVS struct {
	backend
	options  ipvs.Options
	servers  *serverTable
	sets     *netlink.Handle
	families []*serverFamily
}

// serverFamily is the backend's knowledge about one family.
type serverFamily struct {
	*programs
	have     *ipvs.State // the node's; nil: unknown, read before the next plan
	draining bool        // some real servers may drain
	look     time.Time   // when to look at these again
}

// OpenIPVS checks the features of the kernel and the programs on which the backend depends; an [UnsupportedError] names
// a missing one. A family without a working variant of iptables is left out.
func OpenIPVS(o ipvs.Options, log *slog.Logger) (_ *IPVS, err error) {
	// This check comes first: without the module, moby/ipvs pretends to work.
	if err = findIPVS(); err != nil {
		return nil, &UnsupportedError{"IPVS in the kernel (module ip_vs)", err}
	}
	b := &IPVS{backend: backend{log: log}, options: o}
	if b.sets, err = netlink.NewHandle(unix.NETLINK_NETFILTER); err != nil {
		return nil, fmt.Errorf("open a socket to ipset: %w", err)
	}
	for _, f := range model.Families { // a backend in place of this one removes them with its leftovers
		for _, name := range ipvs.SetNames {
			if err := createSet(b.sets, f, name); err != nil {
				return nil, &UnsupportedError{"ipset", fmt.Errorf("create %s: %w", name.Declaration(f), err)}
			}
		}
	}
	err = b.openFamilies(nil, func(p *programs) error {
		if err := p.test(rulesProbe(p.family)); err != nil {
			return err
		}
		b.families = append(b.families, &serverFamily{programs: p})
		return nil
	})
	if err != nil {
		return nil, &UnsupportedError{"iptables with the matches set and ipvs", err}
	}
	if b.servers, err = openServers(); err != nil {
		return nil, err
	}
	// The device comes last. Where it exists and no IPVS backend runs, the removal of leftovers takes all virtual servers
	// for ours: a start that fails must not leave it.
	if _, err := device.Create(ipvs.Device); err != nil {
		return nil, &UnsupportedError{"dummy devices in the kernel (module dummy)", err}
	}
	return b, nil
}

// rulesProbe returns a rule with the matches that the rules of IPVS use and iptables.Probe does not
// have. The sets must exist.
func rulesProbe(f model.Family) string {
	const chain = iptables.IPVSPrefix + "PROBE"
	rule := "-A " + chain + " -m ipvs --ipvs -m set --match-set " + ipvs.Services.In(f) + " dst,dst -j DROP\n"
	return "*mangle\n:" + chain + " - [0:0]\n" + rule + "COMMIT\n"
}

// findIPVS looks for the kernel's interface to IPVS. The request makes the kernel load the
// module, if it can; otherwise findIPVS runs modprobe.
func findIPVS() error {
	const family = "IPVS"
	_, err := netlink.GenlFamilyGet(family)
	if err == nil {
		return nil
	}
	out, probeErr := exec.Command("modprobe", "ip_vs").CombinedOutput()
	if _, err = netlink.GenlFamilyGet(family); err == nil {
		return nil
	}
	err = fmt.Errorf("generic netlink family %s: %w", family, err)
	if probeErr != nil {
		err = fmt.Errorf("%w; modprobe ip_vs: %w: %s", err, probeErr, firstLines(string(out)))
	}
	return err
}

// Resync makes the next Apply read the node's state first, and repair differences.
func (b *IPVS) Resync() {
	for _, f := range b.families {
		f.have = nil
	}
}

// Apply makes the node match s. A failure of one virtual server, address or family does not
// concern the others. The error has all failures, and the next Apply first reads the node's
// state. Each is a [model.FamilyError], that of a few virtual servers with their service ports.
func (b *IPVS) Apply(ctx context.Context, s *model.Snapshot) error {
	var errs []error
	for _, f := range b.families {
		err := b.applyFamily(ctx, f, s.Family(f.family))
		if !model.IsProgrammed(err) {
			err = &model.FamilyError{Family: f.family, Err: err}
		}
		if err != nil {
			f.have = nil
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	b.programmed.Store(model.IsProgrammed(err))
	return err
}

func (b *IPVS) applyFamily(ctx context.Context, f *serverFamily, s *model.FamilySnapshot) error {
	start := time.Now()
	r := &run{IPVS: b, ctx: ctx, f: f, failed: map[ipvs.Key]bool{}}
	var plan ipvs.Plan
	if f.have != nil {
		r.want = ipvs.Compile(f.have, s, f.have.Options)
		plan = ipvs.Diff(f.have, r.want)
	} else {
		have, want, err := b.compile(ctx, f.programs, s)
		if err != nil {
			return err
		}
		r.want, plan = want, ipvs.DiffContent(have, want)
		f.draining, f.look = true, time.Time{} // another process may have begun that
	}
	err := r.carryOut(plan)
	b.update(f.family, func(s *Stats) { s.Operations += uint64(r.done) })
	if !model.IsProgrammed(err) {
		return err
	}
	f.have = r.want
	deleted, undrained := b.endDrained(f)
	if r.done > 0 || deleted > 0 {
		b.log.Debug("applied", slog.String("family", f.family.String()),
			slog.Int("operations", r.done), slog.Int("drained", deleted), slog.Duration("took", time.Since(start)))
	}
	return errors.Join(err, undrained)
}

// compile reads what the kernel has of a family, and compiles what it should have.
func (b *IPVS) compile(
	ctx context.Context, p *programs, s *model.FamilySnapshot,
) (*ipvs.Content, *ipvs.State, error) {
	o := b.options
	o.RandomFully = p.tables.HasRandomFully()
	have, saved, err := b.read(ctx, p, o)
	if err != nil {
		return nil, nil, fmt.Errorf("read the node's state: %w", err)
	}
	want := ipvs.Compile(nil, s, o)
	if want.Rules.Over(saved) == "" {
		have.Rules = want.Rules
	}
	return have, want, nil
}

// read returns a family's objects in the kernel, and the listed rules: they can be compared with
// the rules only after Compile.
func (b *IPVS) read(ctx context.Context, p *programs, o ipvs.Options) (*ipvs.Content, *iptables.Saved, error) {
	c := ipvs.NewContent(p.family)
	for _, s := range o.Sysctls(p.family) {
		if !meant(s) {
			c.Sysctls[s.Name] = s.Value // as good as set
			continue
		}
		value, err := os.ReadFile(sysctlPath(s.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // setting it gives this error, too
			return nil, nil, fmt.Errorf("sysctl: %w", err)
		}
		c.Sysctls[s.Name] = strings.TrimSpace(string(value))
	}
	link, err := device.Find(ipvs.Device)
	if c.Device = link != nil; c.Device {
		c.Addrs, err = device.Addrs(link, int(addressFamilies[p.family]))
	}
	if err != nil {
		return nil, nil, err
	}
	if c.Timeouts, err = b.servers.timeouts(); err != nil {
		return nil, nil, err
	}
	if c.Sets, err = readSets(p.family); err != nil {
		return nil, nil, err
	}
	saved, err := p.save(ctx)
	if err != nil {
		return nil, nil, err
	}
	if c.Servers, err = b.servers.list(p.family); err != nil {
		return nil, nil, err
	}
	return c, saved, nil
}

func sysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// meant reports whether this kernel's version needs a sysctl.
func meant(s ipvs.Sysctl) bool {
	var u unix.Utsname
	_ = unix.Uname(&u) // it can't fail
	return s.Below == "" || older(unix.ByteSliceToString(u.Release[:]), s.Below)
}

// older reports whether a kernel's release is of an earlier version than another. One that is no
// version is older than all.
func older(release, than string) bool {
	v, err := version.ParseGeneric(release)
	return err != nil || v.LessThan(version.MustParseGeneric(than))
}

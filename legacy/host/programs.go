package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// lockTimeout is how long the programs wait for the lock that they share with others, in
// seconds (-w).
const lockTimeout = "5"

// programs are iptables or ip6tables, with -save and -restore, of a variant that works here.
type programs struct {
	family  model.Family
	tables  *goiptables.IPTables
	name    string // "iptables", "ip6tables-legacy", …
	version string
}

// findPrograms finds the first variant that can list and program the table nat.
func findPrograms(f model.Family, variants []string) (*programs, error) {
	name, proto := "iptables", goiptables.ProtocolIPv4
	if f == model.IPv6 {
		name, proto = "ip6tables", goiptables.ProtocolIPv6
	}
	var errs []error
	for _, v := range variants {
		p := &programs{family: f, name: name + v}
		path, err := exec.LookPath(p.name)
		if err == nil {
			p.tables, err = goiptables.New(goiptables.IPFamily(proto), goiptables.Path(path), goiptables.Timeout(5))
		}
		if err == nil {
			err = p.try()
		}
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, exec.ErrNotFound) || v == variants[0] {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	return nil, errors.Join(errs...)
}

// try lets the program check what we need and can't do without, changing nothing.
func (p *programs) try() error {
	out, err := p.command(context.Background(), "", "--version").Output()
	if err != nil {
		return err
	}
	p.version = strings.TrimSpace(string(out))
	var stderr bytes.Buffer
	cmd := p.command(context.Background(), "-restore", "--test", "--noflush", "-w", lockTimeout)
	cmd.Stdin = strings.NewReader(iptables.Probe(p.family))
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, err, firstLines(stderr.String()))
	}
	// A test of the variant nft does not reach the kernel, and a listing does.
	if _, err := p.tables.ListChains("nat"); err != nil {
		return err
	}
	return nil
}

// RandomFully reports whether source ports can be chosen at random.
func (p *programs) RandomFully() bool { return p.tables.HasRandomFully() }

func (p *programs) String() string { return p.version }

func (p *programs) command(ctx context.Context, suffix string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, p.name+suffix, args...)
}

// save reads all rules, with their counters.
func (p *programs) save(ctx context.Context) (*iptables.Saved, error) {
	var stdout, stderr bytes.Buffer
	cmd := p.command(ctx, "-save", "-c")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd.Path, err, firstLines(stderr.String()))
	}
	return iptables.ParseSaved(&stdout)
}

// hook makes the jumps from the built-in chains, each before the rules of others.
func (p *programs) hook(saved *iptables.Saved) error {
	for _, j := range iptables.Jumps() {
		if saved.First(j) {
			continue
		}
		// Insert before deleting: the packets of a moment meet both, and not none.
		if err := p.tables.Insert(j.Table, j.Chain, 1, j.Args...); err != nil {
			return fmt.Errorf("jump from %s to our chains: %w", j.Chain, err)
		}
		for range saved.Count(j) {
			if err := p.deleteLast(j); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteLast deletes the last of several equal jumps.
func (p *programs) deleteLast(j iptables.Jump) error {
	rules, err := p.tables.List(j.Table, j.Chain)
	if err != nil {
		return err
	}
	for i := len(rules) - 1; i > 0; i-- { // rules[0] is the policy
		if strings.Contains(rules[i], "-j "+j.Target()) {
			return p.tables.DeleteById(j.Table, j.Chain, i)
		}
	}
	return nil
}

// firstLines keeps an error message of a program short.
func firstLines(s string) string {
	lines := strings.SplitN(strings.TrimSpace(s), "\n", 4)
	return strings.Join(lines[:min(len(lines), 3)], "; ")
}

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"sync/atomic"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// lockTimeout is the time that the programs wait for the xtables lock, in seconds (-w).
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
	name, proto := programsOf(f)
	var errs []error
	for _, v := range variants {
		p := &programs{family: f, name: name + v}
		var err error
		if p.tables, err = openProgram(p.name, proto); err == nil {
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

func programsOf(f model.Family) (string, goiptables.Protocol) {
	if f == model.IPv6 {
		return "ip6tables", goiptables.ProtocolIPv6
	}
	return "iptables", goiptables.ProtocolIPv4
}

func openProgram(name string, proto goiptables.Protocol) (*goiptables.IPTables, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	const timeout = 5 // seconds
	return goiptables.New(goiptables.IPFamily(proto), goiptables.Path(path), goiptables.Timeout(timeout))
}

// backend is what both backends have: programs of each family that works, and what watches their rules.
type backend struct {
	counters
	log        *slog.Logger
	programs   []*programs
	programmed atomic.Bool // by the last Apply
}

// Variant names the programs in use, like "iptables v1.8.9 (legacy)".
func (b *backend) Variant() string { return b.programs[0].version }

// openFamilies finds the programs of each family, and calls open with them. A family without
// working programs is left out; if neither family has any, the error says why.
func (b *backend) openFamilies(variants []string, open func(*programs) error) error {
	var missing []error
	for _, f := range model.Families {
		p, err := findPrograms(f, variants)
		if err == nil {
			err = open(p)
		}
		if err != nil {
			missing = append(missing, fmt.Errorf("%v: %w", f, err))
			b.log.Warn("IP family left out", slog.String("family", f.String()), slog.Any("err", err))
			continue
		}
		b.programs = append(b.programs, p)
	}
	if len(missing) == len(model.Families) {
		return errors.Join(missing...)
	}
	return nil
}

// try checks the features on which the backend depends. It changes nothing.
func (p *programs) try() error {
	out, err := exec.Command(p.name, "--version").Output()
	if err != nil {
		return err
	}
	p.version = strings.TrimSpace(string(out))
	if err := p.restore(context.Background(), iptables.Probe(p.family), "--test"); err != nil {
		return err
	}
	// A test of the variant nft does not reach the kernel, and a listing does.
	_, err = p.tables.ListChains("nat")
	return err
}

// lacks returns an error if the kernel or the programs lack a match.
func (p *programs) lacks(match string) error {
	return p.restore(context.Background(), iptables.ProbeMatch(match), "--test")
}

// save reads all rules, with their counters.
func save(ctx context.Context, program string) (*iptables.Saved, error) {
	text, err := listing(ctx, program, "-c")
	if err != nil {
		return nil, err
	}
	return iptables.ParseSaved(text)
}

// listing returns the output of iptables-save.
func listing(ctx context.Context, program string, args ...string) (*bytes.Buffer, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program+"-save", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd.Path, err, firstLines(stderr.String()))
	}
	return &stdout, nil
}

// restore runs iptables-restore --noflush with an input.
func (p *programs) restore(ctx context.Context, input string, more ...string) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, p.name+"-restore", append([]string{"--noflush", "-w", lockTimeout}, more...)...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, err, iptables.Explain(firstLines(stderr.String()), input))
	}
	return nil
}

// firstLines keeps an error message of a program short.
func firstLines(s string) string {
	lines := strings.SplitN(strings.TrimSpace(s), "\n", 4)
	return strings.Join(lines[:min(len(lines), 3)], "; ")
}

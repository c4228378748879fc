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
const lockTimeout = 5

// programs are iptables or ip6tables, with -save and -restore, of a variant that works here.
type programs struct {
	family  model.Family
	tables  *goiptables.IPTables
	name    string // "iptables", "ip6tables-legacy", …
	version string
}

// findPrograms finds the first variant that can list and program the table nat.
func findPrograms(f model.Family, variants []string) (*programs, error) {
	if len(variants) == 0 {
		variants = []string{"", "-legacy", "-nft"}
	}
	var errs []error
	for _, v := range variants {
		p, err := openProgram(f, v)
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

// openProgram finds the program of a variant. After an error, the result has its name alone.
func openProgram(f model.Family, variant string) (p *programs, err error) {
	p = &programs{family: f, name: "iptables" + variant}
	if f == model.IPv6 {
		p.name = "ip6tables" + variant
	}
	p.tables, err = goiptables.New(goiptables.Path(p.name), goiptables.Timeout(lockTimeout))
	return p, err
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

// openFamilies finds the programs of each family that has working ones, and calls open with them. The error says why
// neither has.
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
	if err := p.test(iptables.Probe(p.family)); err != nil {
		return err
	}
	// A test of the variant nft does not reach the kernel, and a listing does.
	_, err = p.tables.ListChains("nat")
	return err
}

// test returns an error if the kernel or the programs lack something of an input.
func (p *programs) test(input string) error { return p.restore(context.Background(), input, "--test") }

// save reads all rules, with their counters.
func (p *programs) save(ctx context.Context) (*iptables.Saved, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, p.name+"-save", "-c")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd.Path, err, firstLines(stderr.String()))
	}
	return iptables.ParseSaved(&stdout)
}

// restore runs iptables-restore --noflush with an input.
func (p *programs) restore(ctx context.Context, input string, more ...string) error {
	var stderr bytes.Buffer
	args := append([]string{"--noflush", "-w", fmt.Sprint(lockTimeout)}, more...)
	cmd := exec.CommandContext(ctx, p.name+"-restore", args...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, err, iptables.Explain(firstLines(stderr.String()), input))
	}
	return nil
}

// write runs iptables-restore with a text, unless it is empty. The statistics distinguish failures of texts that have
// changes alone (partial) from those of whole ones.
func (b *backend) write(ctx context.Context, p *programs, text string, partial bool) error {
	if text == "" {
		return nil
	}
	err := p.restore(ctx, text)
	if err != nil {
		b.update(p.family, func(s *Stats) {
			s.RestoreFailures++
			if partial {
				s.PartialRestoreFailures++
			}
		})
	}
	return err
}

// firstLines keeps an error message of a program short.
func firstLines(s string) string {
	lines := strings.SplitN(strings.TrimSpace(s), "\n", 4)
	return strings.Join(lines[:min(len(lines), 3)], "; ")
}

package iptsim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vmapd/vmapd/model"
)

// recentOptions collects the options of one match recent.
type recentOptions struct {
	how, name       string
	seconds         int
	rsource, hasSec bool
}

func (o *recentOptions) option(name, value string) error {
	switch name {
	case "--set", "--rcheck", "--update":
		if o.how != "" {
			return fmt.Errorf("both %s and %s", o.how, name)
		}
		o.how = name
	case "--name":
		if value == "" || len(value) > maxRecent {
			return fmt.Errorf("%q is no name of a list", value)
		}
		o.name = value
	case "--seconds":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fmt.Errorf("%q are no seconds", value)
		}
		o.seconds, o.hasSec = n, true
	case "--rsource":
		o.rsource = true
	}
	return nil
}

// statisticOptions collects the options of one match statistic.
type statisticOptions struct{ mode, probability string }

func (o *statisticOptions) option(name, value string) error {
	to := map[string]*string{"--mode": &o.mode, "--probability": &o.probability}[name]
	if *to != "" {
		return fmt.Errorf("%s twice", name)
	}
	*to = value
	return nil
}

func (o *statisticOptions) match() (Statistic, error) {
	p, err := strconv.ParseFloat(o.probability, 64)
	if err != nil || p <= 0 || p >= 1 {
		return Statistic{}, fmt.Errorf("%q is no probability", o.probability)
	}
	if o.mode != "random" {
		return Statistic{}, fmt.Errorf("statistic has the mode %q", o.mode)
	}
	return Statistic{p}, nil
}

// endModule makes one match of several options.
func (p *parser) endModule() error {
	if o := p.statistic; o != nil {
		p.statistic = nil
		match, err := o.match()
		if err != nil {
			return err
		}
		p.rule.Matches = append(p.rule.Matches, match)
	}
	if o := p.recent; o != nil {
		p.recent = nil
		isSet := o.how == "--set"
		if o.how == "" || o.name == "" || !o.rsource || isSet == o.hasSec {
			return fmt.Errorf("recent needs other options than %+v", *o)
		}
		p.rule.Matches = append(p.rule.Matches, Recent{o.name, isSet})
	}
	return nil
}

// target parses the remaining words: options of a target come last.
func (p *parser) target(name string, isGoto bool) error {
	options := p.words
	p.words = nil
	option := func(want string) (string, error) {
		if len(options) != 2 || options[0] != want {
			return "", fmt.Errorf("%s with %q", name, options)
		}
		return options[1], nil
	}
	if slices.Contains([]string{"ACCEPT", "DROP", "RETURN"}, name) && !isGoto {
		p.rule.Target = Verdict(name)
		return p.noOptions(options)
	}
	if isGoto {
		p.rule.Target = Jump{name, true}
		return p.noOptions(options)
	}
	switch name {
	case "DNAT":
		to, err := option("--to-destination")
		if err != nil {
			return err
		}
		a, err := netip.ParseAddrPort(to)
		p.rule.Target = DNAT{a}
		return err
	case "MARK":
		to, err := option("--set-xmark")
		if err != nil {
			return err
		}
		v, m, err := parseMark(to)
		p.rule.Target = SetMark{v, m}
		return err
	case "REJECT":
		with, err := option("--reject-with")
		p.rule.Target = Reject{with}
		return err
	case "MASQUERADE":
		full := slices.Equal(options, []string{"--random-fully"})
		p.rule.Target = Masquerade{full}
		if full {
			return nil
		}
		return p.noOptions(options)
	}
	p.rule.Target = Jump{name, false}
	return p.noOptions(options)
}

func (p *parser) noOptions(options []string) error {
	if len(options) > 0 {
		return fmt.Errorf("unknown options %q", options)
	}
	return nil
}

// check refuses targets that the kernel would refuse.
func (p *parser) check() error {
	switch t := p.rule.Target.(type) {
	case nil:
		return errors.New("no target")
	case DNAT:
		if p.table != "nat" || p.protocol == 0 || model.FamilyOf(t.To.Addr()) != p.family || t.To.Port() == 0 {
			return fmt.Errorf("DNAT to %v in table %s, for protocol %d", t.To, p.table, p.protocol)
		}
	case Masquerade:
		if p.table != "nat" {
			return errors.New("MASQUERADE is for table nat only")
		}
	case Verdict:
		if p.table == "nat" && t == "DROP" {
			return errors.New("DROP is not for table nat")
		}
	case Reject:
		icmp := "icmp-port-unreachable"
		if p.family == model.IPv6 {
			icmp = "icmp6-port-unreachable"
		}
		if p.table != "filter" || t.With != icmp && (t.With != "tcp-reset" || p.protocol != model.TCP) {
			return fmt.Errorf("REJECT with %s in table %s, for protocol %d", t.With, p.table, p.protocol)
		}
	}
	return nil
}

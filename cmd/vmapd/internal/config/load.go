package config

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
)

// file is a file that was read.
type file struct {
	path string
	data []byte
}

// loader makes a Config of two configurations, and collects the notes.
type loader struct {
	flags     *Flags
	kubeProxy *proxyconfig.KubeProxyConfiguration
	own       *VmapdConfiguration
	notes     []Note
}

// Load reads the files that the flags name, and combines all settings. An error names the file and field, or the flag,
// of each invalid setting. The flags must be parsed, and must not change any more.
func Load(f *Flags) (*Config, error) {
	l := &loader{flags: f, own: &VmapdConfiguration{}}
	c := &Config{flags: f}
	read := errors.Join(l.loadKubeProxy(c), l.loadOwn(c))
	setDefaults(l.kubeProxy)
	setOwnDefaults(l.own)
	if err := errors.Join(read, l.validate()); err != nil {
		return nil, err
	}
	l.finish(c)
	return c, nil
}

func (l *loader) loadKubeProxy(c *Config) error {
	path := l.flags.ConfigFile
	if path == "" {
		l.kubeProxy = l.flags.configuration()
	} else {
		// As kube-proxy, it accepts unknown and duplicate fields.
		l.kubeProxy = &proxyconfig.KubeProxyConfiguration{}
		data, err := readFile(path)
		if err != nil {
			return fmt.Errorf("--config: %w", err)
		}
		c.files = append(c.files, file{path, data})
		odd, err := decode(data, l.kubeProxy, proxyconfig.SchemeGroupVersion.WithKind(proxyKind))
		if err != nil {
			return placed(path, err)
		}
		for _, o := range odd {
			l.note(slog.LevelWarn, path, "%s: ignored", o)
		}
		l.flags.mergeLogging(l.kubeProxy)
		for _, name := range l.flags.withoutEffect() {
			l.note(slog.LevelWarn, "--"+name, "ignored because of --config, as by kube-proxy")
		}
	}
	if l.flags.given("hostname-override") && l.flags.hostname != "" {
		l.kubeProxy.HostnameOverride = l.flags.hostname
		if strings.TrimSpace(l.flags.hostname) == "" {
			return errors.New("--hostname-override: must not consist of spaces only")
		}
	}
	l.kubeProxy.HostnameOverride = strings.ToLower(strings.TrimSpace(l.kubeProxy.HostnameOverride))
	return nil
}

func (l *loader) loadOwn(c *Config) error {
	if path := l.flags.OwnConfigFile; path != "" {
		data, err := readFile(path)
		if err != nil {
			return fmt.Errorf("--vmapd-config: %w", err)
		}
		c.files = append(c.files, file{path, data})
		odd, err := decode(data, l.own, ownVersion.WithKind(ownKind))
		if err == nil && len(odd) > 0 {
			// Only vmapd defines these fields, so an unknown one is a mistake.
			err = errors.New(strings.Join(odd, "\n"))
		}
		if err != nil {
			return placed(path, err)
		}
	}
	l.flags.merge(ownSettings, l.own, &l.flags.own)
	return nil
}

// placed puts the file before each line of an error.
func placed(path string, err error) error {
	return errors.New(path + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+path+": "))
}

// finish fills c.
func (l *loader) finish(c *Config) {
	c.Backend, c.BackendReason = l.chooseBackend()
	l.noteIgnored()
	l.noteGates()
	l.noteSurprises(c.Backend)
	c.From = slices.Clone(l.flags.from)
	l.fill(c)
	c.kubeProxy, c.own, c.Notes = l.kubeProxy, *l.own, l.notes
	fillPeriods(c.kubeProxy, c.Backend)
}

// fillPeriods sets the periods to their effective values, for /configz and --write-config-to.
func fillPeriods(c *proxyconfig.KubeProxyConfiguration, b Backend) {
	iptables, pause := periods(c, IPTables)
	ipvs, _ := periods(c, IPVS)
	nftables, _ := periods(c, NFTables)
	c.IPTables.SyncPeriod.Duration = iptables.value
	c.IPVS.SyncPeriod.Duration = ipvs.value
	c.NFTables.SyncPeriod.Duration = nftables.value
	if b == IPTables && c.Mode == proxyconfig.ProxyMode(IPTables) {
		c.IPTables.MinSyncPeriod.Duration = pause.value
	}
}

func (l *loader) validate() error {
	var errs []error
	running := l.own.Backend
	if running == Auto && l.kubeProxy.Mode != "" {
		running = modeOf(l.kubeProxy)
	}
	fieldErrs := validate(l.kubeProxy, running)
	if running == IPVS {
		fieldErrs = append(fieldErrs, validateIPVS(l.kubeProxy)...)
	}
	for _, e := range append(fieldErrs, validateOwn(l.own)...) {
		errs = append(errs, fmt.Errorf("%s: %s", l.place(e.Field), e.ErrorBody()))
	}
	return errors.Join(append(errs, l.validateFlags()...)...)
}

// validateFlags checks the rules that concern flags alone.
func (l *loader) validateFlags() []error {
	var errs []error
	f := l.flags
	if len(f.from) > 0 && (f.given("kubeconfig") || f.master != "") {
		errs = append(errs, errors.New("--from excludes --kubeconfig and --master"))
	}
	if f.ConfigFile != "" {
		return errs
	}
	for _, name := range []string{"iptables-sync-period", "ipvs-sync-period", "config-sync-period"} {
		if f.given(name) && f.set.Lookup(name).Value.String() == "0s" {
			errs = append(errs, fmt.Errorf("--%s: must be greater than 0", name))
		}
	}
	if f.given("ipvs-exclude-cidrs") && l.own.Backend != IPVS && l.kubeProxy.Mode != proxyconfig.ProxyMode(IPVS) {
		// A cleanup needs it with any backend.
		for _, e := range validateExcludeCIDRs(l.kubeProxy.IPVS.ExcludeCIDRs) {
			errs = append(errs, fmt.Errorf("%s: %s", l.place(e.Field), e.ErrorBody()))
		}
	}
	return errs
}

// place returns where a field is set: a flag, or file and path. The two configurations have no path in common.
func (l *loader) place(path string) string {
	file, flag := l.flags.ConfigFile, flagOf(kubeProxySettings, path)
	flagWins := strings.HasPrefix(path, "logging.")
	if own := flagOf(ownSettings, path); own != "" {
		file, flag, flagWins = l.flags.OwnConfigFile, own, true
	}
	switch {
	case file != "" && !(flagWins && l.flags.given(flag)):
		return file + ": " + path
	case flag == "":
		return path
	}
	return "--" + flag
}

// set returns where a field has its value, with the value.
func (l *loader) set(path, value string) string {
	place := l.place(path)
	if file, ok := strings.CutSuffix(place, ": "+path); ok {
		return fmt.Sprintf("%s: %s in %s", path, value, file)
	}
	return place + "=" + value
}

func (l *loader) note(level slog.Level, place, format string, args ...any) {
	l.notes = append(l.notes, Note{Level: level, Text: place + ": " + fmt.Sprintf(format, args...)})
}

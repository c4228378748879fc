package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
)

// file is a file that was read.
type file struct{ path, data string }

// loader makes a Config of two configurations, and collects the notes.
type loader struct {
	flags     *Flags
	files     []file
	kubeProxy *proxyconfig.KubeProxyConfiguration
	own       *VmapdConfiguration
	notes     []Note
}

// Load reads the files that the flags name, and combines all settings. An error names the file and field, or the flag,
// of the first invalid setting. The flags must be parsed, and must not change any more.
func Load(f *Flags) (*Config, error) {
	l := &loader{flags: f, own: &VmapdConfiguration{}}
	if err := l.loadKubeProxy(); err != nil {
		return nil, err
	}
	if err := l.loadOwn(); err != nil {
		return nil, err
	}
	setDefaults(l.kubeProxy)
	setOwnDefaults(l.own)
	c := &Config{flags: f, files: l.files, From: slices.Clone(f.from)}
	c.Backend, c.BackendReason = l.chooseBackend()
	noPause := f.ConfigFile == "" && f.given("iptables-min-sync-period")
	if l.kubeProxy.Mode == proxyconfig.ProxyMode(IPTables) && c.Backend == IPTables && !noPause {
		setDefault(&l.kubeProxy.IPTables.MinSyncPeriod.Duration, time.Second) // a sync may rewrite many rules
	}
	if err := l.validate(c.Backend); err != nil {
		return nil, err
	}
	l.noteIgnored()
	l.noteGates()
	l.noteSurprises(c.Backend)
	l.fill(c)
	c.kubeProxy, c.own, c.Notes = l.kubeProxy, *l.own, l.notes
	return c, nil
}

func (l *loader) loadKubeProxy() error {
	path := l.flags.ConfigFile
	if path == "" {
		l.kubeProxy = l.flags.configuration()
	} else {
		// As kube-proxy, it accepts unknown and duplicate fields.
		l.kubeProxy = &proxyconfig.KubeProxyConfiguration{}
		kind := proxyconfig.SchemeGroupVersion.WithKind(proxyKind)
		odd, err := l.read("--config", path, l.kubeProxy, kubeProxySettings, kind)
		if err != nil {
			return err
		}
		for _, o := range odd {
			l.note(slog.LevelWarn, path, "%v: ignored", o)
		}
		l.flags.merge(kubeProxySettings, loggingSection, l.kubeProxy, &l.flags.kubeProxy)
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

func (l *loader) loadOwn() error {
	if path := l.flags.OwnConfigFile; path != "" {
		odd, err := l.read("--vmapd-config", path, l.own, ownSettings, ownVersion.WithKind(ownKind))
		if err != nil {
			return err
		}
		if len(odd) > 0 {
			// Only vmapd defines these fields, so an unknown one is a mistake.
			return fmt.Errorf("%s: %w", path, odd[0])
		}
	}
	l.flags.merge(ownSettings, "", l.own, &l.flags.own)
	return nil
}

// read reads the file of a flag; see [decode].
func (l *loader) read(
	flag, path string, out any, settings []setting, want schema.GroupVersionKind,
) (odd []error, err error) {
	data, err := os.ReadFile(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	l.files = append(l.files, file{path, string(data)})
	odd, err = decode(data, out, settings, want)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return odd, nil
}

func (l *loader) validate(chosen Backend) error {
	err := cmp.Or(validate(l.kubeProxy), validateOwn(l.own))
	if err == nil && chosen == IPVS {
		err = validateIPVS(l.kubeProxy)
	}
	if err == nil && l.flags.ConfigFile == "" && l.flags.given("ipvs-exclude-cidrs") {
		err = validateExcludeCIDRs(l.kubeProxy) // a cleanup needs them with any backend
	}
	if err != nil {
		return fmt.Errorf("%s: %s", l.place(err.Field), err.ErrorBody())
	}
	return l.validateFlags()
}

// validateFlags checks the rules that concern flags alone.
func (l *loader) validateFlags() error {
	f := l.flags
	if len(f.from) > 0 && (f.given("kubeconfig") || f.master != "") {
		return errors.New("--from excludes --kubeconfig and --master")
	}
	for _, name := range []string{"iptables-sync-period", "ipvs-sync-period", "config-sync-period"} {
		if f.ConfigFile == "" && f.given(name) && f.set.Lookup(name).Value.String() == "0s" {
			return fmt.Errorf("--%s: must be greater than 0", name)
		}
	}
	return nil
}

// place returns where a field is set: a flag, or file and path. The two configurations have no path in common.
func (l *loader) place(path string) string {
	file, flag := l.flags.ConfigFile, flagOf(kubeProxySettings, path)
	flagWins := strings.HasPrefix(path, loggingSection)
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

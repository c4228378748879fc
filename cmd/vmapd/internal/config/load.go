package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	logsapi "k8s.io/component-base/logs/api/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/model"
)

type file struct{ path, data string }

// Load reads the files that the flags name, and combines all settings. An error names the file and field, or the flag,
// of the first invalid setting. The flags must be parsed, and must not change any more.
func Load(f *Flags) (*Config, error) {
	c := &Config{flags: f, From: slices.Clone(f.from)}
	if err := cmp.Or(c.loadKubeProxy(), c.loadOwn()); err != nil {
		return nil, err
	}
	setDefaults(c.KubeProxy)
	setOwnDefaults(&c.Own)
	c.Backend, c.BackendReason = c.chooseBackend()
	noPause := f.ConfigFile == "" && f.given("iptables-min-sync-period")
	if c.KubeProxy.Mode == proxyconfig.ProxyMode(IPTables) && c.Backend == IPTables && !noPause {
		pause := &c.KubeProxy.IPTables.MinSyncPeriod
		pause.Duration = cmp.Or(pause.Duration, time.Second) // a sync may rewrite many rules
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.noteIgnored()
	c.noteGates()
	c.noteSurprises(c.Backend)
	c.fill()
	return c, nil
}

func (c *Config) loadKubeProxy() error {
	path := c.flags.ConfigFile
	if path == "" {
		c.KubeProxy = c.flags.configuration()
	} else {
		// As kube-proxy, it accepts unknown and duplicate fields.
		c.KubeProxy = &proxyconfig.KubeProxyConfiguration{}
		kind := proxyconfig.SchemeGroupVersion.WithKind(proxyKind)
		odd, err := c.read("--config", path, c.KubeProxy, kubeProxySettings, kind)
		if err != nil {
			return err
		}
		for _, o := range odd {
			c.note(slog.LevelWarn, path, "%v: ignored", o)
		}
		c.flags.merge(kubeProxySettings, loggingSection, c.KubeProxy, &c.flags.kubeProxy)
		for _, name := range c.flags.withoutEffect() {
			c.note(slog.LevelWarn, "--"+name, "ignored because of --config, as by kube-proxy")
		}
	}
	if c.flags.given("hostname-override") && c.flags.hostname != "" {
		c.KubeProxy.HostnameOverride = c.flags.hostname
		if strings.TrimSpace(c.flags.hostname) == "" {
			return errors.New("--hostname-override: must not consist of spaces only")
		}
	}
	c.KubeProxy.HostnameOverride = strings.ToLower(strings.TrimSpace(c.KubeProxy.HostnameOverride))
	return nil
}

func (c *Config) loadOwn() error {
	if path := c.flags.OwnConfigFile; path != "" {
		odd, err := c.read("--vmapd-config", path, &c.Own, ownSettings, ownVersion.WithKind(ownKind))
		if err != nil {
			return err
		}
		if len(odd) > 0 {
			// Only vmapd defines these fields, so an unknown one is a mistake.
			return fmt.Errorf("%s: %w", path, odd[0])
		}
	}
	c.flags.merge(ownSettings, "", &c.Own, &c.flags.own)
	return nil
}

// read reads the file of a flag; see [decode].
func (c *Config) read(
	flag, path string, out any, settings []setting, want schema.GroupVersionKind,
) (odd []error, err error) {
	data := []byte(c.flags.ConfigText)
	if len(data) == 0 || path != c.flags.ConfigFile {
		data, err = os.ReadFile(path)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", flag, err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	c.files = append(c.files, file{path, string(data)})
	if odd, err = decode(data, out, settings, want); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return odd, err
}

// validateFlags checks the rules that concern flags alone.
func (c *Config) validateFlags() error {
	f := c.flags
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
func (c *Config) place(path string) string {
	file, flag := c.flags.ConfigFile, flagOf(kubeProxySettings, path)
	flagWins := strings.HasPrefix(path, loggingSection)
	if own := flagOf(ownSettings, path); own != "" {
		file, flag, flagWins = c.flags.OwnConfigFile, own, true
	}
	switch {
	case file != "" && !(flagWins && c.flags.given(flag)):
		return file + ": " + path
	case flag == "":
		return path
	}
	return "--" + flag
}

func (c *Config) set(path, value string) string { return c.place(path) + "=" + value }

func (c *Config) note(level slog.Level, place, format string, args ...any) {
	c.Notes = append(c.Notes, Note{Level: level, Text: place + ": " + fmt.Sprintf(format, args...)})
}

const lookPeriod = time.Second

// Follow returns true when the files have changed, and are valid. It calls read with the error of those that are not,
// and with nil when the former ones are back. Files that have changed since the look before may be half written. It
// returns false when ctx ends.
//
// Files may be written in place, replaced, or be part of a ConfigMap.
func (c *Config) Follow(ctx context.Context, read func(error)) (changed bool) {
	loaded, seen := c.files, c.files
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(lookPeriod):
		}
		var now []file
		for _, f := range c.files {
			data, _ := os.ReadFile(f.path) // after an error, Load returns it
			now = append(now, file{f.path, string(data)})
		}
		if slices.Equal(now, seen) && !slices.Equal(now, loaded) {
			var err error
			if loaded = now; !slices.Equal(now, c.files) {
				if _, err = Load(c.flags); err == nil {
					return true
				}
			}
			read(err)
		}
		seen = now
	}
}

// kube-proxy's defaults.
const (
	defaultLocalMode = "ClusterCIDR"
	healthzPort      = 10256
	metricsPort      = 10249
)

func period(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// setDefaults sets kube-proxy's defaults, but for the pause of a backend with short syncs.
func setDefaults(c *proxyconfig.KubeProxyConfiguration) {
	c.APIVersion, c.Kind = proxyconfig.SchemeGroupVersion.String(), proxyKind
	fillIn(kubeProxySettings, c)
	anywhere, here := "0.0.0.0", "127.0.0.1"
	if a, _ := model.ParseAddr(c.BindAddress); a.Is6() {
		anywhere, here = "::", "::1"
	}
	c.HealthzBindAddress = withPort(cmp.Or(c.HealthzBindAddress, anywhere), healthzPort)
	c.MetricsBindAddress = withPort(cmp.Or(c.MetricsBindAddress, here), metricsPort)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

func setOwnDefaults(c *VmapdConfiguration) {
	c.APIVersion, c.Kind = ownVersion.String(), ownKind
	fillIn(ownSettings, c)
}

// fillIn sets the fields of a configuration that have no value to their defaults.
func fillIn(settings []setting, config any) {
	for _, s := range settings {
		if s.def == nil {
			continue
		}
		f := fieldByPath(config, s.field)
		if !f.IsZero() {
			continue
		}
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		f.Set(reflect.ValueOf(s.def).Convert(f.Type()))
	}
}

// withPort adds a port to an address without one. It does not change malformed addresses: validation reports them.
func withPort(address string, port int32) string {
	if _, err := model.ParseAddr(address); err != nil {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}

// periods returns the section of kube-proxy's mode, with its syncPeriod and minSyncPeriod.
func periods(c *proxyconfig.KubeProxyConfiguration) (path *field.Path, sync, pause *metav1.Duration) {
	switch modeOf(c) {
	case IPVS:
		return field.NewPath("ipvs"), &c.IPVS.SyncPeriod, &c.IPVS.MinSyncPeriod
	case NFTables:
		return field.NewPath("nftables"), &c.NFTables.SyncPeriod, &c.NFTables.MinSyncPeriod
	case IPTables, Auto, Userspace:
	}
	return field.NewPath("iptables"), &c.IPTables.SyncPeriod, &c.IPTables.MinSyncPeriod
}

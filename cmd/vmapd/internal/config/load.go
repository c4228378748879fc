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

	"github.com/spf13/pflag"
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
	c := &Config{flags: f, From: slices.Clone(f.from), KubeProxy: new(proxyconfig.KubeProxyConfiguration)}
	if err := c.readFiles(); err != nil {
		return nil, err
	}
	c.override()
	setDefaults(c.both())
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
	c.noteSurprises()
	c.fill()
	return c, nil
}

func (c *Config) both() both { return both{c.KubeProxy, &c.Own} }

func (c *Config) readFiles() error {
	path, own := c.flags.ConfigFile, c.flags.OwnConfigFile
	odd, err := c.read("--config", path, c.KubeProxy, proxyconfig.SchemeGroupVersion.WithKind(proxyKind))
	if err != nil {
		return err
	}
	for _, o := range odd { // as kube-proxy, it accepts unknown and duplicate fields
		c.note(slog.LevelWarn, path, "%v: ignored", o)
	}
	odd, err = c.read("--vmapd-config", own, &c.Own, ownVersion.WithKind(ownKind))
	if err == nil && len(odd) > 0 {
		err = fmt.Errorf("%s: %w", own, odd[0]) // only vmapd defines these fields, so an unknown one is a mistake
	}
	return err
}

// override puts flags over the files.
func (c *Config) override() {
	f, p := c.flags, c.KubeProxy
	f.set.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && !settingOf("", flag.Name).applies(f) {
			c.note(slog.LevelWarn, "--"+flag.Name, "ignored because of --config, as by kube-proxy")
		}
	})
	inFile := p.HostnameOverride
	f.merge(c.both())
	p.HostnameOverride = strings.ToLower(strings.TrimSpace(cmp.Or(f.NodeName, p.HostnameOverride, inFile)))
	if f.ConfigFile == "" {
		p.HealthzBindAddress = withPort(p.HealthzBindAddress, f.healthzPort)
		p.MetricsBindAddress = withPort(p.MetricsBindAddress, f.metricsPort)
	}
}

// read reads the file of a flag, if it is given; see [decode].
func (c *Config) read(flag, path string, out any, want schema.GroupVersionKind) (odd []error, err error) {
	if path == "" {
		return nil, nil
	}
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
	if odd, err = decode(data, out, want); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return odd, err
}

// validateFlags checks the rules that concern flags alone.
func (c *Config) validateFlags() error {
	f := c.flags
	if name := f.kubeProxy.HostnameOverride; name != "" && strings.TrimSpace(name) == "" {
		return errors.New("--hostname-override: must not consist of spaces only")
	}
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

// place returns where a field is set: a flag, or file and path.
func (c *Config) place(path string) string {
	s, file := settingOf(path, ""), c.flags.ConfigFile
	if s.own {
		file = c.flags.OwnConfigFile
	}
	switch {
	case file != "" && !(s.applies(c.flags) && c.flags.given(s.flag)):
		return file + ": " + path
	case s.flag == "":
		return path
	}
	return "--" + s.flag
}

func (c *Config) set(path, value string) string { return c.place(path) + "=" + value }

func (c *Config) note(level slog.Level, place, format string, args ...any) {
	c.Notes = append(c.Notes, Note{Level: level, Text: place + ": " + fmt.Sprintf(format, args...)})
}

const lookPeriod = time.Second

// Follow returns true when the files have changed, in place or by a ConfigMap, and are valid, and false when ctx ends.
// It calls read with the error of those that are not, and with nil when the former ones are back. Files that have
// changed since the look before may be half written.
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

// setDefaults sets the fields without a value to kube-proxy's defaults and vmapd's, but for the pause of a backend with
// short syncs.
func setDefaults(c both) {
	c.KubeProxyConfiguration.APIVersion, c.KubeProxyConfiguration.Kind = proxyconfig.SchemeGroupVersion.String(), proxyKind
	c.VmapdConfiguration.APIVersion, c.VmapdConfiguration.Kind = ownVersion.String(), ownKind
	for _, s := range settings {
		if f := c.field(s.field); s.def != nil && f.IsZero() {
			if f.Kind() == reflect.Pointer {
				f.Set(reflect.New(f.Type().Elem()))
				f = f.Elem()
			}
			f.Set(reflect.ValueOf(s.def).Convert(f.Type()))
		}
	}
	anywhere, here := "0.0.0.0", "127.0.0.1"
	if a, _ := model.ParseAddr(c.BindAddress); a.Is6() {
		anywhere, here = "::", "::1"
	}
	c.HealthzBindAddress = withPort(cmp.Or(c.HealthzBindAddress, anywhere), healthzPort)
	c.MetricsBindAddress = withPort(cmp.Or(c.MetricsBindAddress, here), metricsPort)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
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

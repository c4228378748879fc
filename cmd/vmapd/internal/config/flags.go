package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
)

// Flags are the values of a command line. The zero value is ready for AddFlags.
type Flags struct {
	// CleanUp, InitOnly and WriteConfigTo ask for a task in place of the daemon.
	CleanUp       bool
	InitOnly      bool
	WriteConfigTo string // a path, or empty

	// ConfigFile is the path of a KubeProxyConfiguration, OwnConfigFile that of a VmapdConfiguration. Either may be empty.
	ConfigFile    string
	OwnConfigFile string
	ConfigText    string // what ConfigFile has, "" to read it

	set         *pflag.FlagSet // of all flags, also where a command has some of them
	kubeProxy   proxyconfig.KubeProxyConfiguration
	own         VmapdConfiguration
	hostname    string
	clusterCIDR []string
	master      string
	from        []string
	healthzPort int32
	metricsPort int32
}

// AddFlags defines all flags of the daemon: those of kube-proxy, with its names and defaults, and those of vmapd.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	f.set = fs
	fs.StringVar(&f.ConfigFile, "config", "", "")
	fs.StringVar(&f.OwnConfigFile, "vmapd-config", "", "")
	fs.StringVar(&f.WriteConfigTo, "write-config-to", "", "")
	fs.BoolVar(&f.CleanUp, "cleanup", false, "")
	fs.BoolVar(&f.InitOnly, "init-only", false, "")
	fs.StringArrayVar(&f.from, "from", nil, "")
	fs.StringVar(&f.master, "master", "", "")
	fs.StringVar(&f.hostname, "hostname-override", "", "")
	fs.StringSliceVar(&f.clusterCIDR, "cluster-cidr", nil, "")
	fs.Int32Var(&f.healthzPort, "healthz-port", healthzPort, "")
	fs.Int32Var(&f.metricsPort, "metrics-port", metricsPort, "")
	fs.String("boot-id-file", "", "")
	fs.String("machine-id-file", "", "")

	setDefaults(&f.kubeProxy)
	setOwnDefaults(&f.own)
	_ = logsapi.RegisterLogFormat(JSONLog, nil, logsapi.LoggingStableOptions) // fails if it is registered
	logsapi.AddFlags(&f.kubeProxy.Logging, fs)
	define(fs, kubeProxySettings, &f.kubeProxy)
	define(fs, ownSettings, &f.own)
	describe(fs)
	// Without their flags, these depend on other fields.
	f.kubeProxy.HealthzBindAddress, f.kubeProxy.MetricsBindAddress = "", ""
}

// AddSome defines some of the daemon's flags, for other commands.
func (f *Flags) AddSome(fs *pflag.FlagSet, names ...string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(all)
	for _, name := range names {
		fs.AddFlag(all.Lookup(name))
	}
}

// Parse reads flags of the daemon for a command that has some of them.
func (f *Flags) Parse(args []string) error {
	f.set.Usage = func() {}
	if err := f.set.Parse(args); err != nil {
		return err
	}
	if f.set.NArg() > 0 {
		return fmt.Errorf("%q is not a flag", f.set.Arg(0))
	}
	return nil
}

// define defines the flags that set a field of c; its value is the default.
func define(fs *pflag.FlagSet, settings []setting, c any) {
	for _, s := range settings {
		if s.field == "" || s.flag == "" || fs.Lookup(s.flag) != nil {
			continue
		}
		v := fieldByPath(c, s.field)
		if v.Kind() != reflect.Pointer {
			v = v.Addr()
		}
		if v.Type().Elem().Kind() == reflect.String {
			v = v.Convert(reflect.TypeFor[*string]())
		}
		switch p := v.Interface().(type) {
		case *string:
			fs.StringVar(p, s.flag, *p, "")
		case *bool:
			fs.BoolVar(p, s.flag, *p, "")
		case *int32:
			fs.Int32Var(p, s.flag, *p, "")
		case *float32:
			fs.Float32Var(p, s.flag, *p, "")
		case *[]string:
			fs.StringSliceVar(p, s.flag, *p, "")
		case *map[string]bool:
			fs.Var(cliflag.NewMapStringBool(p), s.flag, "")
		case *metav1.Duration:
			fs.DurationVar(&p.Duration, s.flag, p.Duration, "")
		}
	}
}

// describe gives each flag the text of its setting as its help. A flag that sets two fields has the text of the first.
func describe(fs *pflag.FlagSet) {
	for _, s := range slices.Backward(slices.Concat(kubeProxySettings, ownSettings)) {
		if flag := fs.Lookup(s.flag); flag != nil {
			flag.Usage, flag.Hidden = s.help(), s.kind > honoured
		}
	}
}

func (f *Flags) given(name string) bool { return f.set != nil && f.set.Changed(name) }

// configuration returns the flags of kube-proxy in the form of a file. Without their flag,
// fields with a default that depends on others stay empty.
func (f *Flags) configuration() *proxyconfig.KubeProxyConfiguration {
	c := f.kubeProxy.DeepCopy()
	c.ClusterCIDR = strings.Join(f.clusterCIDR, ",")
	c.NFTables.MasqueradeAll = c.IPTables.MasqueradeAll
	c.NFTables.SyncPeriod, c.NFTables.MinSyncPeriod = c.IPTables.SyncPeriod, c.IPTables.MinSyncPeriod
	c.HealthzBindAddress = withPort(c.HealthzBindAddress, f.healthzPort)
	c.MetricsBindAddress = withPort(c.MetricsBindAddress, f.metricsPort)
	return c
}

// merge overrides the fields of a section with those of the flags that were given.
func (f *Flags) merge(settings []setting, section string, to, from any) {
	for _, s := range settings {
		if s.field != "" && strings.HasPrefix(s.field, section) && f.given(s.flag) {
			fieldByPath(to, s.field).Set(fieldByPath(from, s.field))
		}
	}
}

// withoutEffect returns the flags that were given although --config overrides them, sorted.
func (f *Flags) withoutEffect() []string {
	var names []string
	for _, s := range kubeProxySettings {
		if f.given(s.flag) && !appliesWithFile[s.flag] && !strings.HasPrefix(s.field, loggingSection) {
			names = append(names, s.flag)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// JSONLog is the value of Config.LogFormat for JSON. All others mean text.
const JSONLog = logsapi.JSONLogFormat

// LogFormat returns the value of --logging-format.
func (f *Flags) LogFormat() string { return f.kubeProxy.Logging.Format }

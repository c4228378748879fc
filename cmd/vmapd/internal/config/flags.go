package config

import (
	"fmt"
	"reflect"
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
	NodeName      string // of other commands, in place of --hostname-override; "" for that

	set         *pflag.FlagSet // of all flags, also where a command has some of them
	kubeProxy   proxyconfig.KubeProxyConfiguration
	own         VmapdConfiguration
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
	fs.StringSliceVar(&f.clusterCIDR, "cluster-cidr", nil, "")
	fs.Int32Var(&f.healthzPort, "healthz-port", healthzPort, "")
	fs.Int32Var(&f.metricsPort, "metrics-port", metricsPort, "")
	fs.String("boot-id-file", "", "")
	fs.String("machine-id-file", "", "")

	all := both{&f.kubeProxy, &f.own}
	setDefaults(all)
	_ = logsapi.RegisterLogFormat(JSONLog, nil, logsapi.LoggingStableOptions) // fails if it is registered
	logsapi.AddFlags(&f.kubeProxy.Logging, fs)
	for _, s := range settings {
		if s.field != "" && s.flag != "" && fs.Lookup(s.flag) == nil {
			define(fs, s.flag, all.field(s.field))
		}
	}
	fs.VisitAll(func(flag *pflag.Flag) {
		s := settingOf("", flag.Name)
		flag.Usage, flag.Hidden = s.help(), s.kind != honoured
	})
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

// define defines the flag that sets a field; its value is the default.
func define(fs *pflag.FlagSet, name string, v reflect.Value) {
	if v.Kind() != reflect.Pointer {
		v = v.Addr()
	}
	if v.Type().Elem().Kind() == reflect.String {
		v = v.Convert(reflect.TypeFor[*string]())
	}
	switch p := v.Interface().(type) {
	case *string:
		fs.StringVar(p, name, *p, "")
	case *bool:
		fs.BoolVar(p, name, *p, "")
	case *int32:
		fs.Int32Var(p, name, *p, "")
	case *float32:
		fs.Float32Var(p, name, *p, "")
	case *[]string:
		fs.StringSliceVar(p, name, *p, "")
	case *map[string]bool:
		fs.Var(cliflag.NewMapStringBool(p), name, "")
	case *metav1.Duration:
		fs.DurationVar(&p.Duration, name, p.Duration, "")
	}
}

func (f *Flags) given(name string) bool { return f.set != nil && f.set.Changed(name) }

// merge sets the fields of the flags that were given and apply.
func (f *Flags) merge(to both) {
	f.kubeProxy.ClusterCIDR = strings.Join(f.clusterCIDR, ",")
	for _, s := range settings {
		if s.field != "" && f.given(s.flag) && s.applies(f) {
			to.field(s.field).Set(both{&f.kubeProxy, &f.own}.field(settingOf("", s.flag).field))
		}
	}
}

// JSONLog is the value of Config.LogFormat for JSON. All others mean text.
const JSONLog = logsapi.JSONLogFormat

// LogFormat returns the value of --logging-format.
func (f *Flags) LogFormat() string { return f.kubeProxy.Logging.Format }

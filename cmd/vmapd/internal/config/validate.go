package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	logsapi "k8s.io/component-base/logs/api/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/devices"
)

// validate checks configurations that have their defaults. As kube-proxy, it does not look at sections of modes that
// nobody has chosen.
func (c *Config) validate() error {
	p := c.KubeProxy
	err := cmp.Or(
		c.firstError(func(s setting) bool {
			section := Backend(s.section())
			ofMode := section == IPVS || section == NFTables
			return !ofMode || section == c.Backend || section == modeOf(p) ||
				s.flag == "ipvs-exclude-cidrs" && c.flags.ConfigFile == "" && c.flags.given(s.flag) // of a cleanup, too
		}),
		validatePeriods(p), validateLocalMode(p), validateLogging(p.Logging),
	)
	if err != nil {
		return fmt.Errorf("%s: %s", c.place(err.Field), err.ErrorBody())
	}
	return c.validateFlags()
}

// firstError returns the first error in some of the fields, or nil.
func (c *Config) firstError(in func(setting) bool) *field.Error {
	for _, s := range settings {
		if s.check == nil || !in(s) {
			continue
		}
		path, value := field.NewPath(s.field), reflect.Indirect(c.both().field(s.field)).Interface()
		if list, ok := value.([]string); ok {
			i := slices.IndexFunc(list, func(item string) bool { return s.check(item) != nil })
			if i < 0 {
				continue
			}
			path, value = path.Index(i), list[i]
		}
		if wrong := s.check(value); wrong != nil {
			return field.Invalid(path, value, wrong.Error())
		}
	}
	return nil
}

func validatePeriods(p *proxyconfig.KubeProxyConfiguration) *field.Error {
	path, sync, pause := periods(p)
	if pause.Duration > sync.Duration {
		return field.Invalid(path.Child("minSyncPeriod"), pause, fmt.Sprintf("more than syncPeriod (%v)", sync.Duration))
	}
	return nil
}

// localModes are the model's names of kube-proxy's modes.
var localModes = map[proxyconfig.LocalMode]model.LocalPodsMode{
	defaultLocalMode:      model.ByClusterCIDR,
	"NodeCIDR":            model.ByNodeCIDR,
	"BridgeInterface":     model.ByBridge,
	"InterfaceNamePrefix": model.ByInterfacePrefix,
}

// validateLocalMode checks that there is what the mode needs by which pods are distinguished from other clients.
func validateLocalMode(p *proxyconfig.KubeProxyConfiguration) *field.Error {
	path, mode := field.NewPath("detectLocal"), localModes[p.DetectLocalMode]
	switch {
	case mode == model.ByBridge && p.DetectLocal.BridgeInterface == "":
		return field.Required(path.Child("bridgeInterface"), "detectLocalMode BridgeInterface needs it")
	case mode == model.ByInterfacePrefix && p.DetectLocal.InterfaceNamePrefix == "":
		return field.Required(path.Child("interfaceNamePrefix"), "detectLocalMode InterfaceNamePrefix needs it")
	}
	return nil
}

// validateLogging does not check the options of formats, which are ignored.
func validateLogging(c logsapi.LoggingConfiguration) *field.Error {
	c.Options = logsapi.FormatOptions{}
	return cmp.Or(logsapi.Validate(&c, nil, field.NewPath("logging"))...)
}

// check returns what is wrong with a value.
type check func(value any) error

func unless(ok bool, wrong string) error {
	if ok {
		return nil
	}
	return errors.New(wrong)
}

func parses[T any](_ T, err error) bool { return err == nil }

func oneOf[T ~string](all ...T) check {
	return func(value any) error {
		return unless(slices.Contains(all, value.(T)), fmt.Sprintf("none of %q", all))
	}
}

func between(low, high int32) check {
	return func(value any) error {
		n := value.(int32)
		return unless(low <= n && n <= high, fmt.Sprintf("not between %d and %d", low, high))
	}
}

func positive(d any) error { return unless(d.(metav1.Duration).Duration > 0, "not more than 0") }

func notNegative(d any) error { return unless(d.(metav1.Duration).Duration >= 0, "less than 0") }

func wholeSeconds(d any) error {
	return cmp.Or(unless(d.(metav1.Duration).Duration%time.Second == 0, "not a number of whole seconds"), notNegative(d))
}

func isAddress(text any) error {
	return unless(parses(model.ParseAddr(text.(string))), "not an IP address")
}

func isCIDR(text any) error { return unless(parses(model.ParsePrefix(text.(string))), "not a CIDR") }

func isHostPort(text any) error {
	host, port, err := net.SplitHostPort(text.(string))
	n, _ := strconv.ParseUint(port, 10, 16)
	valid := err == nil && isAddress(host) == nil && n > 0
	return unless(valid, "not an IP address with or without a port from 1 to 65535")
}

// areClusterCIDRs checks CIDRs with commas between them, at most one of each family. The text may be empty.
func areClusterCIDRs(text any) error {
	if text == "" {
		return nil
	}
	seen := map[model.Family]bool{}
	for s := range strings.SplitSeq(text.(string), ",") {
		p, err := model.ParsePrefix(s)
		if err != nil {
			return err
		}
		f := model.FamilyOf(p.Addr())
		if seen[f] {
			return fmt.Errorf("%q is a second one of %v", s, f)
		}
		seen[f] = true
	}
	return nil
}

func isNodePortAddress(text any) error {
	return unless(parses(ParseNodePortAddresses([]string{text.(string)})), "neither primary, all, localhost nor a CIDR")
}

func isInterface(text any) error { return model.CheckInterface(text.(string), false) }

func beginsInterface(text any) error { return model.CheckInterface(text.(string), true) }

func isAlgorithm(text any) error {
	_, _, err := model.ParseAlgorithm(text.(string))
	return err
}

func areDevices(text any) error {
	_, err := devices.Parse(text.(string))
	return err
}

func isAbsolute(path any) error {
	return unless(path == "" || filepath.IsAbs(path.(string)), "must be an absolute path, or empty")
}

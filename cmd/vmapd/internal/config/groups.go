package config

import "github.com/spf13/pflag"

// Names of the groups of flags in the help.
const (
	trafficGroup   = "traffic"
	accessGroup    = "cluster access"
	kubeProxyGroup = "further kube-proxy"
	ownGroup       = "further vmapd"
)

// Groups returns the names of the groups that Group returns, in the order of the help.
func Groups() []string { return []string{trafficGroup, accessGroup, kubeProxyGroup, ownGroup} }

// groupAnnotation marks a flag with its group.
const groupAnnotation = "vmapd.io/group"

// Group returns the name of the group that a flag belongs to, or "" if it is none of this package.
func Group(f *pflag.Flag) string {
	if g := f.Annotations[groupAnnotation]; len(g) > 0 {
		return g[0]
	}
	return ""
}

// groupOf returns the name of the group of a setting in one of the two tables.
func groupOf(s setting, own bool) string {
	switch {
	case s.kind == traffic:
		return trafficGroup
	case s.kind == access:
		return accessGroup
	case own:
		return ownGroup
	}
	return kubeProxyGroup
}

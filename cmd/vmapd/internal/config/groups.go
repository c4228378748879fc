package config

import (
	"slices"

	"github.com/spf13/pflag"
)

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

// accessFlags say where the objects come from, and how.
var accessFlags = []string{"kubeconfig", "master", "from", "kube-api-content-type", "kube-api-qps", "kube-api-burst"}

// groupOf returns the name of the group of a setting in one of the two tables.
func groupOf(s setting, own bool) string {
	switch {
	case slices.Contains(accessFlags, s.flag):
		return accessGroup
	case slices.Contains(trafficFlags, s.flag) && s.flag != "config" && s.flag != "vmapd-config":
		return trafficGroup
	case own:
		return ownGroup
	}
	return kubeProxyGroup
}

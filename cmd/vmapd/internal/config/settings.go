package config

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// setting is one field, one flag, or one of each that mean the same: a row of a table in configuration.md. A flag that
// sets two fields stands in the row of each; its help is the text of the first.
type setting struct {
	field string // path in the file; empty if there is only a flag
	flag  string // empty if there is only a field
	kind  string // honoured, ignored or deprecated
	what  string // its effect or, if it is ignored, the reason
	own   bool   // it is vmapd's, not kube-proxy's
	rule
}

// The kinds of settings.
const (
	honoured   = "yes"
	ignored    = "ignored"    // it is read and checked, but has no effect; a note says so if it is set
	deprecated = "deprecated" // it has an effect, and the help hides it
)

var settings = slices.Concat([][]setting{rows("kube-proxy"), rows("vmapd")}...)

// rows returns the settings in a table of configuration.md.
func rows(table string) (list []setting) {
	for _, cells := range docs.Rows(docs.Configuration, table) {
		field, flag := strings.Trim(cells[0], "`"), strings.TrimLeft(strings.Trim(cells[1], "`"), "-")
		list = append(list, setting{field, flag, cells[2], cells[3], table == "vmapd", rules[field]})
	}
	return list
}

// rule is what the page does not say of a field.
type rule struct {
	def   any   // its default; nil: none, or another field decides
	check check // of its value, or of each one in a list; nil: any is valid
}

var rules = map[string]rule{
	"clientConnection.contentType":    {def: "application/vnd.kubernetes.protobuf"},
	"clientConnection.qps":            {def: float32(5)},
	"clientConnection.burst":          {int32(10), between(0, math.MaxInt32)},
	"bindAddress":                     {"0.0.0.0", isAddress},
	"healthzBindAddress":              {check: isHostPort},
	"metricsBindAddress":              {check: isHostPort},
	"mode":                            {check: oneOf[proxyconfig.ProxyMode]("", "iptables", "ipvs", "nftables")},
	"iptables.masqueradeBit":          {int32(14), between(0, 31)},
	"iptables.localhostNodePorts":     {def: true},
	"iptables.syncPeriod":             {period(30 * time.Second), notNegative},
	"iptables.minSyncPeriod":          {check: notNegative},
	"ipvs.syncPeriod":                 {period(30 * time.Second), notNegative},
	"ipvs.minSyncPeriod":              {check: notNegative},
	"ipvs.scheduler":                  {check: oneOf(slices.Concat(ipvs.Schedulers, []string{""})...)},
	"ipvs.excludeCIDRs":               {check: isCIDR},
	"ipvs.tcpTimeout":                 {check: wholeSeconds},
	"ipvs.tcpFinTimeout":              {check: wholeSeconds},
	"ipvs.udpTimeout":                 {check: wholeSeconds},
	"nftables.masqueradeBit":          {int32(14), between(0, 31)},
	"nftables.syncPeriod":             {period(30 * time.Second), notNegative},
	"nftables.minSyncPeriod":          {check: notNegative},
	"detectLocalMode":                 {defaultLocalMode, oneOf(slices.Sorted(maps.Keys(localModes))...)},
	"detectLocal.bridgeInterface":     {check: isInterface},
	"detectLocal.interfaceNamePrefix": {check: beginsInterface},
	"clusterCIDR":                     {check: areClusterCIDRs},
	"nodePortAddresses":               {check: isNodePortAddress},
	"oomScoreAdj":                     {int32(-999), between(-1000, 1000)},
	"conntrack.maxPerCore":            {int32(32 << 10), between(0, math.MaxInt32)},
	"conntrack.min":                   {int32(128 << 10), between(0, math.MaxInt32)},
	"conntrack.tcpEstablishedTimeout": {period(24 * time.Hour), notNegative},
	"conntrack.tcpCloseWaitTimeout":   {period(time.Hour), notNegative},
	"conntrack.udpTimeout":            {check: notNegative},
	"conntrack.udpStreamTimeout":      {check: notNegative},
	"configSyncPeriod":                {period(15 * time.Minute), positive},

	"backend":                    {Auto, oneOf(Auto, NFTables, IPVS, IPTables, Userspace)},
	"lbAlgorithm":                {"random", isAlgorithm},
	"maglevTableSize":            {int32(model.DefaultTableSize), between(model.MinTableSize, model.MaxTableSize)},
	"fastPath":                   {"off", areDevices},
	"connectionGrace":            {check: notNegative},
	"connectionRetry":            {def: true},
	"externalAddresses.ipRanges": {check: isCIDR},
	"socket":                     {socket.DefaultPath, isAbsolute},
}

// help returns the setting's text for the help of its flag.
func (s setting) help() string {
	text, _, _ := strings.Cut(s.what, "; see [") // a section of the document
	text = strings.ReplaceAll(text, "`", "")
	if s.kind != honoured {
		text = s.kind + ": " + text
	}
	return text
}

func (s setting) section() string {
	section, _, _ := strings.Cut(s.field, ".")
	return section
}

// settingOf returns the first setting with a field or a flag. It does not look at an index at the end of the path.
func settingOf(field, flag string) (found setting) {
	field, _, _ = strings.Cut(field, "[")
	i := slices.IndexFunc(settings, func(s setting) bool {
		return s.field == field && field != "" || s.flag == flag && flag != ""
	})
	if i >= 0 {
		found = settings[i]
	}
	return found
}

// alwaysApply are the flags of kube-proxy that apply although there is --config, besides those about the log.
var alwaysApply = []string{"config", "write-config-to", "cleanup", "init-only", "master", "hostname-override"}

// applies reports whether the setting's flag has an effect.
func (s setting) applies(f *Flags) bool {
	return f.ConfigFile == "" || s.own || s.section() == "logging" || slices.Contains(alwaysApply, s.flag)
}

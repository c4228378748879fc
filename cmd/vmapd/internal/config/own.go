package config

import (
	"cmp"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/devices"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/model"
)

// ownVersion and ownKind are those of the file with vmapd's settings.
var ownVersion = schema.GroupVersion{Group: "vmapd.io", Version: "v1alpha1"}

const ownKind = "VmapdConfiguration"

// VmapdConfiguration has the settings that kube-proxy has no field for. A missing field has its default.
type VmapdConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// Backend is nftables, ipvs, iptables, userspace or auto. Default: auto.
	Backend Backend `json:"backend,omitempty"`
	// LBAlgorithm chooses an endpoint where a Service has no annotation for it: random,
	// maglev or maglev-port. Default: random.
	LBAlgorithm string `json:"lbAlgorithm,omitempty"`
	// MaglevTableSize is the number of slots of a lookup table of maglev and maglev-port, from 61 to 65521. Default: 4093.
	MaglevTableSize int32 `json:"maglevTableSize,omitempty"`
	// DropInvalid drops packets of Services that connection tracking classifies as INVALID.
	DropInvalid bool `json:"dropInvalid,omitempty"`
	// ServiceCounters counts the new connections of each Service port.
	ServiceCounters bool `json:"serviceCounters,omitempty"`
	// FastPath are the devices between which packets of established connections take the fast path: off, auto, or names
	// with commas between them, of which one with * at the end stands for those that begin so. Default: off.
	FastPath string `json:"fastPath,omitempty"`
	// ConnectionGrace is the time after which TCP and SCTP connections to a removed endpoint
	// are closed. Default: 0, never.
	ConnectionGrace metav1.Duration `json:"connectionGrace,omitzero"`
	// ConnectionRetry lets the kernel choose another endpoint for a connection that got no answer within a second, where a
	// Service has no annotation for it; nftables and userspace only. Default: true.
	ConnectionRetry  *bool `json:"connectionRetry,omitempty"`
	OutlierDetection bool  `json:"outlierDetection,omitempty"`
	// ExternalAddresses restricts the addresses that Services have besides their cluster IPs.
	ExternalAddresses ExternalAddresses `json:"externalAddresses,omitzero"`
	// Socket is the path of the unix socket at which vmapd's subcommands ask the daemon; an empty one
	// disables it. Default: /run/vmapd/vmapd.sock.
	Socket *string `json:"socket,omitempty"`
}

// ExternalAddresses has settings of [model.ExternalAddresses].
type ExternalAddresses struct {
	// IPRanges are the ranges in which spec.externalIPs are served. Default: all.
	IPRanges []string `json:"ipRanges,omitempty"`
	// AllowServiceCIDRs serves addresses in a range of cluster IPs.
	AllowServiceCIDRs bool `json:"allowServiceCIDRs,omitempty"`
	// RefuseNodeAddresses does not serve addresses of the node.
	RefuseNodeAddresses bool `json:"refuseNodeAddresses,omitempty"`
}

// Budgets returns the limits of one Service with a backend. With iptables and IPVS, each endpoint of each port is a
// rule or an operation, which takes the kernel longer the more there are: with the defaults of the model, one Service
// makes others wait for 12 s. 5,000 endpoints are as many as there are nodes in the largest clusters that are tested.
func Budgets(b Backend) model.Budgets {
	d := model.Budgets{}.WithDefaults()
	if b == IPTables || b == IPVS {
		d.Frontends, d.Endpoints, d.Entries = 2000, 5000, 8192
	}
	return d
}

func setOwnDefaults(c *VmapdConfiguration) {
	c.APIVersion, c.Kind = ownVersion.String(), ownKind
	setDefault(&c.Backend, Auto)
	setDefault(&c.LBAlgorithm, model.Random.String())
	setDefault(&c.MaglevTableSize, model.DefaultTableSize)
	setDefault(&c.FastPath, "off")
	setDefault(&c.ConnectionRetry, new(true))
	setDefault(&c.Socket, new(socket.DefaultPath))
}

func validateOwn(c *VmapdConfiguration) *field.Error {
	path := field.NewPath
	_, _, badAlgorithm := model.ParseAlgorithm(c.LBAlgorithm)
	_, badFastPath := devices.Parse(c.FastPath)
	switch {
	case badAlgorithm != nil:
		return field.Invalid(path("lbAlgorithm"), c.LBAlgorithm, badAlgorithm.Error())
	case badFastPath != nil:
		return field.Invalid(path("fastPath"), c.FastPath, badFastPath.Error())
	case *c.Socket != "" && !filepath.IsAbs(*c.Socket):
		return field.Invalid(path("socket"), *c.Socket, "must be an absolute path, or empty")
	}
	return cmp.Or(
		oneOf(path("backend"), c.Backend, Auto, NFTables, IPVS, IPTables, Userspace),
		between(path("maglevTableSize"), c.MaglevTableSize, model.MinTableSize, model.MaxTableSize),
		notNegative(path("connectionGrace"), &c.ConnectionGrace),
		areCIDRs(path("externalAddresses", "ipRanges"), c.ExternalAddresses.IPRanges),
	)
}

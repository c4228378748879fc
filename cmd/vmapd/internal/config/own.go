package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmapd/vmapd/model"
)

// ownVersion and ownKind are those of the file with vmapd's settings.
var ownVersion = schema.GroupVersion{Group: "vmapd.io", Version: "v1alpha1"}

const ownKind = "VmapdConfiguration"

// VmapdConfiguration has the settings that kube-proxy has no field for; configuration.md describes them. A missing
// field has its default.
type VmapdConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	Backend           Backend           `json:"backend,omitempty"`
	LBAlgorithm       string            `json:"lbAlgorithm,omitempty"`
	MaglevTableSize   int32             `json:"maglevTableSize,omitempty"`
	DropInvalid       bool              `json:"dropInvalid,omitempty"`
	ServiceCounters   bool              `json:"serviceCounters,omitempty"`
	FastPath          string            `json:"fastPath,omitempty"`
	ConnectionGrace   metav1.Duration   `json:"connectionGrace,omitzero"`
	ConnectionRetry   *bool             `json:"connectionRetry,omitempty"`
	OutlierDetection  bool              `json:"outlierDetection,omitempty"`
	ExternalAddresses ExternalAddresses `json:"externalAddresses,omitzero"`
	Socket            *string           `json:"socket,omitempty"`
}

// ExternalAddresses has settings of [model.ExternalAddresses].
type ExternalAddresses struct {
	IPRanges            []string `json:"ipRanges,omitempty"`
	AllowServiceCIDRs   bool     `json:"allowServiceCIDRs,omitempty"`
	RefuseNodeAddresses bool     `json:"refuseNodeAddresses,omitempty"`
}

// Budgets returns the limits of one Service with a backend. With iptables and IPVS, each endpoint of each port is a
// rule or an operation, which takes the kernel longer the more there are: with the defaults of the model, one Service
// makes others wait for 12 s. 5,000 endpoints are as many as there are nodes in the largest clusters that are tested.
func Budgets(b Backend) model.Budgets {
	d := model.Budgets{}.WithDefaults()
	if b == IPTables || b == IPVS {
		d.Endpoints, d.Entries = 5000, 8192
	}
	return d
}

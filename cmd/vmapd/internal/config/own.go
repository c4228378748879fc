package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vmapd/vmapd/model"
)

// ownVersion and ownKind are those of the file with vmapd's settings.
var ownVersion = schema.GroupVersion{Group: "vmapd.io", Version: "v1alpha1"}

const ownKind = "VmapdConfiguration"

// VmapdConfiguration has the settings that kube-proxy has no field for. A missing field has
// its default.
type VmapdConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// Backend is nftables, ipvs, iptables or auto. Default: auto.
	Backend Backend `json:"backend,omitempty"`
	// LBAlgorithm chooses an endpoint where a Service has no annotation for it: random,
	// round-robin or source-hash. Default: random.
	LBAlgorithm string `json:"lbAlgorithm,omitempty"`
	// DropInvalid drops packets of Services that connection tracking classifies as INVALID.
	DropInvalid bool `json:"dropInvalid,omitempty"`
	// ServiceCounters counts the new connections of each Service port.
	ServiceCounters bool `json:"serviceCounters,omitempty"`
	// ConnectionGrace is the time after which TCP and SCTP connections to a removed endpoint
	// are closed. Default: 0, never.
	ConnectionGrace metav1.Duration `json:"connectionGrace,omitzero"`
	// MetricsTLS serves metrics over TLS.
	MetricsTLS TLSFiles `json:"metricsTLS,omitzero"`
	// MetricsAuthentication is none, or token: the API server reviews the bearer token of each
	// client. Default: none.
	MetricsAuthentication Authentication `json:"metricsAuthentication,omitempty"`
}

// TLSFiles are the paths of a certificate and its key, in PEM.
type TLSFiles struct {
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
}

// Authentication is how metrics clients are authenticated.
type Authentication string

// The ways of authentication.
const (
	NoAuthentication    Authentication = "none"
	TokenAuthentication Authentication = "token" // TokenReview and SubjectAccessReview
)

// DeepCopyObject implements [runtime.Object]. Nothing in c is shared.
func (c *VmapdConfiguration) DeepCopyObject() runtime.Object {
	out := *c
	return &out
}

func setOwnDefaults(c *VmapdConfiguration) {
	c.APIVersion, c.Kind = ownVersion.String(), ownKind
	setDefault(&c.Backend, Auto)
	setDefault(&c.LBAlgorithm, model.Random.String())
	setDefault(&c.MetricsAuthentication, NoAuthentication)
}

func validateOwn(c *VmapdConfiguration) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, oneOf(field.NewPath("backend"), c.Backend, Auto, NFTables, IPVS, IPTables)...)
	errs = append(errs, oneOf(field.NewPath("metricsAuthentication"), c.MetricsAuthentication, NoAuthentication, TokenAuthentication)...)
	if _, err := model.ParseAlgorithm(c.LBAlgorithm); err != nil {
		errs = append(errs, oneOf(field.NewPath("lbAlgorithm"), c.LBAlgorithm,
			model.Random.String(), model.RoundRobin.String(), model.SourceHash.String())...)
	}
	errs = append(errs, notNegative(field.NewPath("connectionGrace"), c.ConnectionGrace.Duration)...)
	switch tls := field.NewPath("metricsTLS"); {
	case c.MetricsTLS.CertFile == "" && c.MetricsTLS.KeyFile != "":
		errs = append(errs, field.Required(tls.Child("certFile"), "the certificate of the key"))
	case c.MetricsTLS.CertFile != "" && c.MetricsTLS.KeyFile == "":
		errs = append(errs, field.Required(tls.Child("keyFile"), "the key of the certificate"))
	}
	return errs
}

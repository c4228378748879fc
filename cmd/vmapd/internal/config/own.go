package config

import (
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vmapd/vmapd/model"
)

// ownVersion and ownKind are those of the file with our settings.
var ownVersion = schema.GroupVersion{Group: "vmapd.io", Version: "v1alpha1"}

const ownKind = "VmapdConfiguration"

// VmapdConfiguration is what vmapd has besides kube-proxy's settings. A field that is left
// out has its default.
type VmapdConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// Backend is nftables, ipvs, iptables or auto. Default: auto.
	Backend Backend `json:"backend,omitempty"`
	// LBAlgorithm is how endpoints are chosen where a Service does not say: random,
	// round-robin or source-hash. Default: random.
	LBAlgorithm string `json:"lbAlgorithm,omitempty"`
	// DropInvalid drops packets of Services that connection tracking takes for invalid.
	DropInvalid bool `json:"dropInvalid,omitempty"`
	// ServiceCounters counts each Service's connections.
	ServiceCounters bool `json:"serviceCounters,omitempty"`
	// ConnectionGrace is how long TCP and SCTP connections may go on to an endpoint that is
	// gone. Default: 0, as long as they like.
	ConnectionGrace metav1.Duration `json:"connectionGrace,omitzero"`
	// MetricsTLS lets metrics be served over TLS.
	MetricsTLS TLSFiles `json:"metricsTLS,omitzero"`
	// MetricsAuthentication is none, or token: whoever reads metrics shows a token, and the
	// API server says whether that may be. Default: none.
	MetricsAuthentication Authentication `json:"metricsAuthentication,omitempty"`
}

// TLSFiles are the paths of a certificate and its key, in PEM.
type TLSFiles struct {
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
}

// Authentication is how whoever reads metrics is known.
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

func (f *Flags) addOwnTrafficFlags(fs *pflag.FlagSet) {
	c := &f.own
	fs.StringVar(&f.OwnConfigFile, "vmapd-config", "", "file with a "+ownKind+"; our flags go before it")
	fs.StringVar((*string)(&c.Backend), "backend", string(Auto),
		"how to program the node: nftables, ipvs, iptables, or auto: as kube-proxy's mode says or, without one, the first of these that the kernel has")
	fs.StringVar(&c.LBAlgorithm, "lb-algorithm", model.Random.String(),
		"how endpoints are chosen: random, round-robin or source-hash; the annotation "+model.AnnotationAlgorithm+" of a Service goes before")
	fs.BoolVar(&c.DropInvalid, "drop-invalid", false, "drop packets of Services that connection tracking takes for invalid")
	fs.BoolVar(&c.ServiceCounters, "service-counters", false, "count each Service's connections")
	fs.DurationVar(&c.ConnectionGrace.Duration, "connection-grace", 0,
		"how long TCP and SCTP connections may go on to an endpoint that is gone; 0: as long as they like; the annotation "+
			model.AnnotationConnectionGrace+" of a Service goes before")
}

func (f *Flags) addOwnFlags(fs *pflag.FlagSet) {
	c := &f.own
	fs.StringVar(&c.MetricsTLS.CertFile, "tls-cert-file", "", "certificate, to serve metrics over TLS")
	fs.StringVar(&c.MetricsTLS.KeyFile, "tls-private-key-file", "", "the certificate's key")
	fs.StringVar((*string)(&c.MetricsAuthentication), "metrics-auth", string(NoAuthentication),
		"who may read metrics: none (anybody), or token: who the API server says may")
}

// mergeOwn puts the flags that were given over the fields of our file.
func (f *Flags) mergeOwn(c *VmapdConfiguration) {
	for name, merge := range map[string]func(){
		"backend":              func() { c.Backend = f.own.Backend },
		"lb-algorithm":         func() { c.LBAlgorithm = f.own.LBAlgorithm },
		"drop-invalid":         func() { c.DropInvalid = f.own.DropInvalid },
		"service-counters":     func() { c.ServiceCounters = f.own.ServiceCounters },
		"connection-grace":     func() { c.ConnectionGrace = f.own.ConnectionGrace },
		"tls-cert-file":        func() { c.MetricsTLS.CertFile = f.own.MetricsTLS.CertFile },
		"tls-private-key-file": func() { c.MetricsTLS.KeyFile = f.own.MetricsTLS.KeyFile },
		"metrics-auth":         func() { c.MetricsAuthentication = f.own.MetricsAuthentication },
	} {
		if f.given(name) {
			merge()
		}
	}
}

func setOwnDefaults(c *VmapdConfiguration) {
	c.APIVersion, c.Kind = ownVersion.String(), ownKind
	if c.Backend == "" {
		c.Backend = Auto
	}
	if c.LBAlgorithm == "" {
		c.LBAlgorithm = model.Random.String()
	}
	if c.MetricsAuthentication == "" {
		c.MetricsAuthentication = NoAuthentication
	}
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
		errs = append(errs, field.Required(tls.Child("certFile"), "the key's certificate"))
	case c.MetricsTLS.CertFile != "" && c.MetricsTLS.KeyFile == "":
		errs = append(errs, field.Required(tls.Child("keyFile"), "the certificate's key"))
	}
	return errs
}

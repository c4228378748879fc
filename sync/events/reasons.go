package events

import corev1 "k8s.io/api/core/v1"

// Types of events.
const (
	Normal  = corev1.EventTypeNormal
	Warning = corev1.EventTypeWarning
)

// Controller is what events name as their origin.
const Controller = "vmapd"

// Actions, as the API calls what was being done: kube-proxy's words, as tools filter by them,
// and one of ours.
const (
	ActionStart   = "StartKubeProxy"
	ActionListen  = "Listen"
	ActionProgram = "ProgramService"
)

// Reasons of kube-proxy.
const (
	// About the Node, with ActionStart.
	ReasonStarting      = "Starting"                        // Normal: the daemon is about to serve
	ReasonHealthzFailed = "FailedToStartProxierHealthcheck" // no listener for /healthz
	ReasonMetricsFailed = "FailedToStartMetricServer"       // no listener for /metrics
	ReasonReadOnlySysFS = "readOnlySysFS"                   // connection tracking can't be set up

	// About a Service, with ActionListen: no listener on its healthCheckNodePort.
	ReasonServiceHealthFailed = "FailedToStartServiceHealthcheck"
)

// Reasons that kube-proxy has nothing for.
const (
	// About a Service, with ActionListen: no listener on its node port on a loopback address.
	ReasonNodePortFailed = "FailedToStartNodePortListener"
	// About the Node, with ActionStart: connection tracking can't be set up, for another reason
	// than that of ReasonReadOnlySysFS.
	ReasonConntrackFailed = "FailedToSetUpConntrack"
	// About the Node: soon it can track no more connections.
	ReasonConntrackNearlyFull = "ConntrackTableNearlyFull"
	// About the Node, with ActionStart: the configuration has something its administrator
	// should know, for instance a slower backend than the node could have.
	ReasonConfiguration = "Configuration"

	// About a Service, with ActionProgram: another Service has its address and port.
	ReasonFrontendConflict = "FrontendConflict"
	// About a Service, with ActionProgram: a field makes no sense, and is left out.
	ReasonInvalidField = "InvalidField"
)

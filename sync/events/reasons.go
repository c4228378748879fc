package events

import corev1 "k8s.io/api/core/v1"

// Types of events.
const (
	Normal  = corev1.EventTypeNormal
	Warning = corev1.EventTypeWarning
)

// Controller is the reportingController of our events.
const Controller = "vmapd"

// Actions. The first two are kube-proxy's, since tools filter by them.
const (
	ActionStart   = "StartKubeProxy"
	ActionListen  = "Listen"
	ActionProgram = "ProgramService"
)

// Reasons of kube-proxy.
const (
	// About the Node, with ActionStart.
	ReasonStarting      = "Starting"                        // Normal: the daemon starts
	ReasonHealthzFailed = "FailedToStartProxierHealthcheck" // no listener for /healthz
	ReasonMetricsFailed = "FailedToStartMetricServer"       // no listener for /metrics

	// About a Service, with ActionListen: no listener on its healthCheckNodePort.
	ReasonServiceHealthFailed = "FailedToStartServiceHealthcheck"
)

// Reasons of our own.
const (
	// About a Service, with ActionListen: no listener on its node port on a loopback address.
	ReasonNodePortFailed = "FailedToStartNodePortListener"
	// About the Node, with ActionStart: connection-tracking sysctls can't be set.
	ReasonConntrackFailed = "FailedToSetUpConntrack"
	// About the Node: its connection-tracking table is nearly full.
	ReasonConntrackNearlyFull = "ConntrackTableNearlyFull"
	// About the Node, with ActionProgram: load balancers must not send new connections to it, or they may again (Normal).
	ReasonNodeNotEligible = "NodeNotEligible"
	ReasonNodeEligible    = "NodeEligible"
	// About the Node, with ActionStart: the cluster does not have it.
	ReasonNoNode = "NodeNotFound"
	// About the Node, with ActionStart: the configuration works but needs attention, for
	// instance because it selects a slower backend than necessary.
	ReasonConfiguration = "Configuration"
	// About the Node, with ActionStart: another proxy is active there.
	ReasonOtherProxy = "OtherProxy"
	// About the Node, with ActionStart: rules of another proxy or backend can't be removed.
	ReasonLeftovers = "LeftoversNotRemoved"

	// About a Service, with ActionProgram: another Service has its address and port.
	ReasonFrontendConflict = "FrontendConflict"
	// About a Service, with ActionProgram: a field is invalid and ignored.
	ReasonInvalidField = "InvalidField"
	// About a Service, with ActionProgram: it exceeds a budget, and is served in part.
	ReasonOverBudget = "OverBudget"
)

// action returns the action of a reason.
func action(reason string) string {
	switch reason {
	case ReasonServiceHealthFailed, ReasonNodePortFailed:
		return ActionListen
	case ReasonNodeNotEligible, ReasonNodeEligible, ReasonFrontendConflict, ReasonInvalidField, ReasonOverBudget:
		return ActionProgram
	}
	return ActionStart
}

// shared reports whether all nodes have one event for a reason.
func shared(reason string) bool {
	switch reason {
	case ReasonFrontendConflict, ReasonInvalidField, ReasonOverBudget:
		return true
	}
	return false
}

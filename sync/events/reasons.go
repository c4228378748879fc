package events

import corev1 "k8s.io/api/core/v1"

// Controller is the reportingController of our events.
const Controller = "vmapd"

// Actions. The first two are kube-proxy's, since tools filter by them.
const (
	ActionStart   = "StartKubeProxy"
	ActionListen  = "Listen"
	ActionProgram = "ProgramService"
)

// Reasons of kube-proxy, about the Node and, the last one, about a Service.
const (
	ReasonStarting      = "Starting"                        // the daemon starts
	ReasonHealthzFailed = "FailedToStartProxierHealthcheck" // no listener for /healthz
	ReasonMetricsFailed = "FailedToStartMetricServer"       // no listener for /metrics

	ReasonServiceHealthFailed = "FailedToStartServiceHealthcheck" // no listener on its healthCheckNodePort
)

// Reasons of our own, about the Node.
const (
	ReasonConntrackFailed     = "FailedToSetUpConntrack"   // connection-tracking sysctls can't be set
	ReasonConntrackNearlyFull = "ConntrackTableNearlyFull" // its connection-tracking table is
	ReasonNodeNotEligible     = "NodeNotEligible"          // load balancers must not send new connections to it
	ReasonNodeEligible        = "NodeEligible"             // they may again
	ReasonNoNode              = "NodeNotFound"             // the cluster does not have it
	ReasonOtherProxy          = "OtherProxy"               // another proxy is active there
	ReasonLeftovers           = "LeftoversNotRemoved"      // rules of another proxy or backend can't be removed
	// The configuration works but needs attention, for instance because it selects a slower backend than necessary.
	ReasonConfiguration = "Configuration"
)

// Reasons of our own, about a Service.
const (
	ReasonNodePortFailed   = "FailedToStartNodePortListener" // no listener on its node port on a loopback address
	ReasonFrontendConflict = "FrontendConflict"              // another Service has its address and port
	ReasonInvalidField     = "InvalidField"                  // a field is invalid and ignored
	ReasonOverBudget       = "OverBudget"                    // it exceeds a budget, and is served in part
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

// eventType returns the type of an event with a reason.
func eventType(reason string) string {
	if reason == ReasonStarting || reason == ReasonNodeEligible {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// shared reports whether all nodes have one event for a reason.
func shared(reason string) bool {
	switch reason {
	case ReasonFrontendConflict, ReasonInvalidField, ReasonOverBudget:
		return true
	}
	return false
}

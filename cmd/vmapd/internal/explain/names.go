package explain

import "github.com/vmapd/vmapd/model"

// The names of the model's values in JSON.

func verdictName(v model.Verdict) string {
	return [...]string{
		model.NotOurs: "notOurs", model.Forwarded: "forwarded",
		model.Rejected: "rejected", model.Dropped: "dropped",
	}[v]
}

func reasonName(r model.Reason) string {
	return [...]string{
		model.NoService:         "noService",
		model.HasEndpoints:      "hasEndpoints",
		model.FromPodInside:     "fromPodInside",
		model.FromNodeInside:    "fromNodeInside",
		model.NoEndpoints:       "noEndpoints",
		model.UnusedPort:        "unusedPort",
		model.NoLocalEndpoints:  "noLocalEndpoints",
		model.SourceNotAllowed:  "sourceNotAllowed",
		model.UnallocatedAddr:   "unallocatedAddr",
		model.LoopbackForwarder: "loopbackForwarder",
	}[r]
}

func snatName(r model.SNATReason) string {
	return [...]string{
		model.KeepSource:      "keepSource",
		model.OnNode:          "onNode",
		model.Hairpin:         "hairpin",
		model.EveryClusterIP:  "everyClusterIP",
		model.OffCluster:      "offCluster",
		model.ExternalCluster: "externalCluster",
		model.FromNode:        "fromNode",
		model.ByForwarder:     "byForwarder",
	}[r]
}

func kindName(k model.FrontendKind) string {
	return [...]string{
		model.ClusterIP: "clusterIP", model.LoadBalancerIP: "loadBalancerIP",
		model.ExternalIP: "externalIP", model.NodePort: "nodePort",
	}[k]
}

func exclusionName(e model.Exclusion) string {
	return [...]string{
		model.NotExcluded:     "",
		model.NotServing:      "notServing",
		model.NotLocal:        "notLocal",
		model.ReadyOnesExist:  "readyOnesExist",
		model.HintsOtherNodes: "hintsOtherNodes",
		model.HintsOtherZones: "hintsOtherZones",
	}[e]
}

func mismatchName(m model.Mismatch) string {
	return [...]string{
		model.OtherFamily: "otherFamily", model.NoPort: "noPort", model.OtherProtocol: "otherProtocol",
	}[m]
}

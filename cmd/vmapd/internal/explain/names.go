package explain

import "github.com/vmapd/vmapd/model"

// The names of the model's values in JSON.
var (
	verdictNames = [...]string{
		model.NotOurs: "notOurs", model.Forwarded: "forwarded",
		model.Rejected: "rejected", model.Dropped: "dropped",
	}
	reasonNames = [...]string{
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
	}
	snatNames = [...]string{
		model.KeepSource:      "keepSource",
		model.OnNode:          "onNode",
		model.Hairpin:         "hairpin",
		model.EveryClusterIP:  "everyClusterIP",
		model.OffCluster:      "offCluster",
		model.ExternalCluster: "externalCluster",
		model.FromNode:        "fromNode",
		model.ByForwarder:     "byForwarder",
	}
	kindNames = [...]string{
		model.ClusterIP: "clusterIP", model.LoadBalancerIP: "loadBalancerIP",
		model.ExternalIP: "externalIP", model.NodePort: "nodePort",
	}
	exclusionNames = [...]string{
		model.NotExcluded:     "",
		model.NotServing:      "notServing",
		model.NotLocal:        "notLocal",
		model.ReadyOnesExist:  "readyOnesExist",
		model.HintsOtherNodes: "hintsOtherNodes",
		model.HintsOtherZones: "hintsOtherZones",
	}
	mismatchNames = [...]string{
		model.OtherFamily: "otherFamily", model.NoPort: "noPort", model.OtherProtocol: "otherProtocol", model.OverBudget: "overBudget",
	}
)

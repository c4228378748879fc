// Command demo demonstrates vmapd (make demo): it creates a client, a node and three pods in network namespaces
// (package lab). vmapd runs in the node and reads manifests. demo makes real connections through a cluster IP, a node
// port, an external IP and a load balancer's address, over IPv4 and IPv6, TCP and UDP. Then it replaces a pod under
// load.
//
// It prints which pods answered. The exit code is 1 if a result was wrong. It removes everything at the end, also if it
// is interrupted. It needs root or user namespaces.
package main

import (
	"os"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

func main() {
	d := demo{out: os.Stdout, vmapd: "bin/vmapd"}
	lab.Main("demo", d.run)
}

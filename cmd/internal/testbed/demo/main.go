// Command demo demonstrates vmapd (make demo): it creates a client, a node and three pods in network namespaces (package
// lab). vmapd runs in the node and reads manifests. demo makes real connections through a cluster IP, a node port, an
// external IP and a load balancer's address, over IPv4 and IPv6, TCP and UDP. Then it replaces a pod under load.
//
//	demo -vmapd bin/vmapd
//
// It prints which pods answered. The exit code is 1 if a result was wrong. It removes everything at the end, also when
// it is interrupted. It needs root or user namespaces.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

func main() {
	vmapd := flag.String("vmapd", "bin/vmapd", "the program")
	flag.Parse()
	code, done, err := lab.Reexec()
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: root or user namespaces are needed: %v\n", err)
		os.Exit(1)
	case done:
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	d := demo{out: os.Stdout, vmapd: *vmapd}
	err = d.run(ctx)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errFailed): // the output says what
		os.Exit(1)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "demo: interrupted; everything was removed")
		const bySignal = 128 + int(syscall.SIGINT) // as in a shell
		os.Exit(bySignal)
	default:
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

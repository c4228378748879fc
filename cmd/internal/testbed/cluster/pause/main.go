// Command pause does nothing until it is asked to end. It holds the namespaces of a pod.
package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGINT, unix.SIGTERM)
	// Children of other processes of the pod, if they share its process namespace.
	signal.Ignore(unix.SIGCHLD)
	<-stop
}

// Command podserver is the program of the pods behind the Services of a test: it answers each
// line over TCP and each datagram over UDP with the pod's name and the client's address.
//
// After SIGTERM it answers for a while, as every server should: clients learn only later that
// the pod ends.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

func main() {
	port := flag.Uint("port", 8080, "port to answer on, over TCP and UDP; 0 for none")
	longer := flag.Duration("longer", 10*time.Second, "how long to answer after SIGTERM")
	flag.Parse()
	if err := run(uint16(*port), *longer); err != nil {
		fmt.Fprintln(os.Stderr, "podserver:", err)
		os.Exit(1)
	}
}

func run(port uint16, longer time.Duration) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	if port == 0 {
		<-ended
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the pod's name: %w", err)
	}
	server, err := lab.Serve(name, port)
	if err != nil {
		return err
	}
	defer server.Close()
	<-ended
	time.Sleep(longer)
	return nil
}

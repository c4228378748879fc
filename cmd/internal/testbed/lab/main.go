package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model/nettest"
)

// Main is the main function of a program that builds worlds: it runs the program, in a user namespace if need be, until
// it ends or is interrupted.
func Main(name string, run func(ctx context.Context) error) {
	nettest.Prepare()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(os.Stderr, "%s: interrupted; everything was removed\n", name)
		os.Exit(128 + int(unix.SIGINT)) // as in a shell
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
